"""The words that a made-up project is told in."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Theme:
    """One made-up project: what it is about and what its parts are called."""

    package: str
    about: str
    ticket: str
    """What its tickets begin with."""
    owner: str
    owners: tuple[str, str]
    amount: str
    open: str
    closed: str
    areas: tuple[str, ...]
    nouns: tuple[tuple[str, str], ...]
    """Singular and plural of the things it deals with."""
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
