"""Texts and themes of simulated sessions: what users and agents write."""

from dataclasses import dataclass

SYSTEM = """\
You are a coding agent working in the repository of {package}, {about}. You work on behalf of one developer, who reads \
what you write and sees every tool call you make.

Rules
- Find out before you change anything: read the ticket, the code and its tests.
- A bug gets a test that fails first. Run it, see it fail, mend the code, run it again.
- Make the smallest change that does what was asked. Do not touch files that have nothing to do with it.
- Run the tests of the whole area before you say that something is done.
- Tickets are called {ticket}-<number>. Name the ticket in your answer.
- Never commit unless you are asked to.
- Answer in a few sentences: what was wrong, what you changed, how you know that it works.

Layout
- src/{package}/<area>/<noun>.py   values and the functions on them, no input or output
- src/{package}/<area>/store.py    storage
- src/{package}/api.py             the HTTP handlers
- tests/<area>/test_<noun>.py      pytest, one file for each module

You may call several tools at once when they do not depend on each other.\
"""

OPENING = (
    "Great. Next one: ",
    "Thanks, that works here too. ",
    "Good. Now this: ",
    "Perfect. ",
    "Nice, merged. ",
    "OK. ",
    "",
)
REPORT = (
    "{ticket}, in {area}: {symptom} Please find out why and mend it, with a test.",
    "{symptom} That is {ticket}, somewhere in {area}. Can you take it?",
    "Have a look at {ticket} please. {symptom} I have not looked at the {area} code myself.",
    "Support forwarded {ticket}: {symptom} It should be in {area}. Add a regression test so it stays fixed.",
)
LOOKING = (
    "I'll read {ticket} and look for the {noun} code in {area}.",
    "Let me start with the ticket, and find where {area} deals with a {noun}.",
    "First {ticket} itself, then the places in {area} that mention a {noun}.",
)
READING = (
    "The code is in `{path}`. I read it together with its tests.",
    "`{path}` it is. Let me read the whole module and what is tested already.",
    "`{name}` belongs in `{path}`; I want to see that file and its tests before I change anything.",
)
TESTING = (
    "I think I see it in `{name}`: {cause}. A test that shows it comes first.",
    "Looking at `{name}`, {cause}. I write the test that should fail because of that.",
    "My suspicion: {cause}. No test covers it yet, so I add one for `{name}`.",
)
FIXING = (
    "It fails for the reason I expected. Now `{name}` itself.",
    "That reproduces it. I mend `{name}`.",
    "Confirmed by the failing test. The change in `{name}` is small.",
)
RETRYING = (
    "The indentation was off. I read those lines again.",
    "I quoted the line wrongly; let me look at it once more.",
)
VERIFY = (
    "Now the tests of this module.",
    "Let me run the module's tests again.",
    "That should do it. Running the tests.",
)
SUITE = (
    "Green. Now everything in `{area}`.",
    "That passes. I run all of `{area}` to be sure that nothing else depended on it.",
)
REVIEW = (
    "A last look at the whole change.",
    "Let me read the diff once as a reviewer would.",
)
DONE = (
    (
        "{ticket} is fixed. The reason: {cause}. I changed `{name}` in `{path}` and added a test in `{tests}` that "
        "failed before and passes now. All tests of `{area}` pass."
    ),
    (
        "Found it: {cause}. `{name}` in `{path}` now does the right thing, and `{tests}` has a test for it, which "
        "failed before the change. The rest of `{area}` is green. That settles {ticket}."
    ),
    (
        "Done, {ticket} can be closed. In `{name}` (`{path}`) {cause}. The new test in `{tests}` pins the right "
        "behaviour; I saw it fail first. Nothing else in `{area}` had to change."
    ),
)
FEATURE = (
    "We need a way to {wish}. Call it `{name}`, in `{path}`, with a test please.",
    "Could you add `{name}` to `{path}`? It should {wish}. Same style as the rest, and test it.",
)
QUESTION = (
    "Quick question before we go on: where is `{name}` in {area}, what does it promise, and is it tested?",
    "What exactly does `{name}` do, and who calls it within {area}? I might want to change it.",
)
COMMIT = (
    "Looks good to me. Commit what we have so far.",
    "Please commit this before we continue, with a message that says what changed.",
    "OK, commit that.",
)


PLAN_OBJECTIVE = "Mend what is reported in each area, with tests, and write the release notes"
PLAN_REQUEST = "Please go through the reported problems area by area, and write release notes at the end."
PLAN_STEP = "Mend {area}"
COMMIT_TITLE = "{area}: mend {module} and its tests"


@dataclass(frozen=True, slots=True)
class Theme:
    """The subject and the vocabulary of a generated project."""

    package: str
    about: str
    ticket: str
    """Prefix of ticket ids."""
    owner: str
    owners: tuple[str, str]
    amount: str
    open: str
    closed: str
    areas: tuple[str, ...]
    nouns: tuple[tuple[str, str], ...]
    """Singular and plural of the project's objects."""
    people: tuple[str, ...]


THEMES = (
    Theme(
        package="parcelry",
        about="a parcel shipping service for small shops",
        ticket="PAR",
        owner="customer_id",
        owners=("acme", "borealis"),
        amount="amount_cents",
        open="open",
        closed="delivered",
        areas=("shipping", "billing", "returns", "tracking", "customs", "pickup", "quotes", "claims"),
        nouns=(
            ("parcel", "parcels"),
            ("voucher", "vouchers"),
            ("refund", "refunds"),
            ("shipment", "shipments"),
            ("label", "labels"),
            ("manifest", "manifests"),
            ("pallet", "pallets"),
            ("receipt", "receipts"),
        ),
        people=("Ines", "Tomasz", "Priya", "Okello"),
    ),
    Theme(
        package="shelfmark",
        about="the lending system of a group of public libraries",
        ticket="LIB",
        owner="member_id",
        owners=("m-1042", "m-2210"),
        amount="fee_cents",
        open="active",
        closed="returned",
        areas=("lending", "catalog", "holds", "fines", "branches", "acquisitions", "reading_rooms", "archive"),
        nouns=(
            ("loan", "loans"),
            ("copy", "copies"),
            ("hold", "holds"),
            ("fine", "fines"),
            ("title", "titles"),
            ("purchase", "purchases"),
            ("transfer", "transfers"),
            ("reservation", "reservations"),
        ),
        people=("Marta", "Jonas", "Aiko", "Samuel"),
    ),
    Theme(
        package="tidewatch",
        about="a platform that collects water levels from harbour stations",
        ticket="TID",
        owner="station_id",
        owners=("skagen", "tyboron"),
        amount="level_mm",
        open="pending",
        closed="verified",
        areas=("ingest", "alerts", "forecasts", "exports", "calibration", "stations", "reports", "billing"),
        nouns=(
            ("reading", "readings"),
            ("warning", "warnings"),
            ("forecast", "forecasts"),
            ("sample", "samples"),
            ("survey", "surveys"),
            ("gauge", "gauges"),
            ("correction", "corrections"),
            ("failure", "failures"),
        ),
        people=("Freja", "Luca", "Nadia", "Henrik"),
    ),
)
