"""What an application does with coolant.submit, by a client that is not ours. Run by sql_submit.rs.

Usage: sql_submit.py URL. Prints `ok` at the end; anything else is a failure.
"""

import sys

import psycopg
from psycopg.types.json import Jsonb

SUBMIT = "SELECT job_id, outcome FROM coolant.submit(%s, payload => %s, idempotency_key => %s)"


def kept(conn, key):
    return conn.execute("SELECT count(*) FROM coolant.job_specs WHERE idempotency_key = %s", [key]).fetchone()[0]


def main(url):
    payload = {"order": 7, "text": "한국어", "weights": [1.0, 0.5]}
    with psycopg.connect(url) as conn:
        conn.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        conn.commit()

        # The order and its job are there together.
        with conn.transaction():
            conn.execute("INSERT INTO orders VALUES (7)")
            job_id, outcome = conn.execute(SUBMIT, ["MAIL", Jsonb(payload), "order:7"]).fetchone()
        assert outcome == "created", outcome

        # Or neither is.
        try:
            with conn.transaction():
                conn.execute(SUBMIT, ["MAIL", Jsonb({"order": 8}), "order:8"])
                conn.execute("INSERT INTO orders VALUES (7)")
        except psycopg.errors.UniqueViolation:
            pass
        assert kept(conn, "order:8") == 0

        # The same again is the same job.
        with conn.transaction():
            again = conn.execute(SUBMIT, ["MAIL", Jsonb(payload), "order:7"]).fetchone()
        assert again == (job_id, "existing"), again

        # Other work under the key is refused, and a savepoint keeps the rest of the transaction.
        with conn.transaction():
            conn.execute("INSERT INTO orders VALUES (9)")
            try:
                with conn.transaction():
                    conn.execute(SUBMIT, ["MAIL", Jsonb({"order": 9}), "order:7"])
                raise AssertionError("a reused key was taken")
            except psycopg.Error as error:
                assert error.sqlstate == "CL422", error.sqlstate
                assert "IDEMPOTENCY_KEY_REUSED" in error.diag.message_primary
                assert job_id in error.diag.message_detail and "payload.order" in error.diag.message_detail
        assert conn.execute("SELECT count(*) FROM orders WHERE id = 9").fetchone()[0] == 1

        # What is out of bounds is named.
        try:
            with conn.transaction():
                conn.execute("SELECT * FROM coolant.submit('MAIL', priority => %s)", [11])
            raise AssertionError("a priority of 11 was taken")
        except psycopg.Error as error:
            assert (error.sqlstate, error.diag.column_name) == ("CL400", "priority"), error

        # The types that this client gives to Python's numbers and lists fit.
        conn.execute(
            "SELECT * FROM coolant.submit('MAIL', priority => %s, delay_seconds => %s, lease_seconds => %s,"
            " retry_delays_seconds => %s, upstreams => %s, tags => %s, max_attempts => %s)",
            [3, 60, 0.5, [1.0, 2.5], ["a/b", "c"], Jsonb({"team": "search"}), 2],
        )
        # Many rows of one statement.
        cursor = conn.execute(
            "SELECT s.outcome FROM orders o CROSS JOIN LATERAL"
            " coolant.submit('MAIL', jsonb_build_object('order', o.id), 'order:' || o.id || ':v2') s"
        )
        assert cursor.fetchall() == [("created",), ("created",)]
    print("ok")


main(sys.argv[1])
