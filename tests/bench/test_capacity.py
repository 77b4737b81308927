"""The capacity table multiplies the costs of one request."""

from bench.capacity import RequestCosts, capacity_table


def test_the_table_multiplies_the_costs_of_a_request():
    table = capacity_table(RequestCosts(0.006, 0.0012, 8_000, 2_000, 100))
    rows = {row[0]: row[1:] for row in table.rows}

    assert rows["requests/s at the peak"] == ["6", "58", "579"]  # 1,000,000 users * 10 requests * 5 / 86,400 s
    assert rows["service processes"] == ["1", "1", "6"]  # 579/s * 6 ms / 60 %
    assert rows["connections to PostgreSQL"] == ["10", "10", "60"]
    assert rows["cores of PostgreSQL"] == ["1", "1", "2"]
    assert rows["write-ahead log at the peak"][2] == "4.6 MB/s"
    assert rows["growth of the database per month"][2] == "600.0 GB"
