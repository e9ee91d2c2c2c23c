"""A Spark application that logs in with a password in every way, fails in many ways, and records all output of Spark.

python -m tests.support.secret_app ENDPOINT SERVER_KEY PASSWORD_FILE DIRECTORY, the password also in MTL_PLANTED
"""

from __future__ import annotations

import functools
import io
import os
import pickle
import sys
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pyspark_mtl.datasource import MtlDataSource

VARIABLE = "MTL_PLANTED"
PLANS = ("simple", "extended", "codegen", "cost", "formatted")
PAGES = ("environment/", "SQL/", "StreamingQuery/", "jobs/", "stages/", "executors/")
ANSWERS = ("environment", "sql?details=true&planDescription=true", "jobs", "stages", "allexecutors")


class Job:
    """One run; `log_file` is the file of all output for the user."""

    def __init__(self, login: dict[str, str], place: Path) -> None:
        self.login = login
        self.place = place
        self.log_file = place / "output.txt"
        self.spark = (
            SparkSession.builder.master("local[2]")
            .appName("secret")
            .config("spark.eventLog.enabled", "true")
            .config("spark.eventLog.compress", "false")
            .config("spark.eventLog.dir", (place / "events").as_uri())
            .config("spark.ui.enabled", "true")
            .config("spark.ui.port", "0")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "1")
            .getOrCreate()
        )
        self.spark.sparkContext.setLogLevel("INFO")

    def log(self, text: str) -> None:
        with self.log_file.open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    @contextmanager
    def log_output(self) -> Iterator[None]:
        printed = io.StringIO()
        with redirect_stdout(printed):
            yield
        self.log(printed.getvalue())

    def fails(self, what: Callable[[], object]) -> None:
        try:
            what()
        except Exception:  # noqa: BLE001 of any exception only the text is checked
            self.log(traceback.format_exc())
        else:
            raise AssertionError("it should have failed")

    # --- uses of a password ---------------------------------------------------------------------------------

    def read(self, **options: str) -> DataFrame:
        return self.spark.read.format("mtl").options(**self.login, **options).load()

    def write(self, **options: str) -> None:
        rows = self.spark.range(0, 3, 1, 1).selectExpr("'no JSON' body")
        rows.write.format("mtl").options(**self.login, **options).mode("append").save()

    def stream(self, login: dict[str, str], group: str, **options: str) -> DataFrame:
        """Bodies of `events`; with options, those of typed bodies."""
        reader = self.spark.readStream.format("mtl").options(**login, resources="events", group=group)
        if options:
            reader = reader.schema("id bigint")
        frame = reader.options(startingOffsets="earliest", **options).load()
        return frame.selectExpr("cast(id as string) body") if options else frame.select("body")

    def copy(self, name: str, *logins: dict[str, str], **options: str) -> None:
        """A streaming query to `name` that reads `events` once with each of the logins."""
        sources = [self.stream(login, f"etl.{name}-{n}", **options) for n, login in enumerate(logins)]
        rows = functools.reduce(DataFrame.union, sources)
        writer = rows.writeStream.format("mtl").options(**self.login, resource=name, createResource="true")
        query = writer.option("checkpointLocation", str(self.place / name)).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            with self.log_output():
                query.explain(extended=True)
            self.log(
                "\n".join([str(query.exception()), *(progress.json for progress in query.recentProgress)])
            )

    def show(self) -> None:
        """Write the plans of a read, the data sent to its tasks, and the repr of the objects."""
        frame = self.read(resources="events")
        with self.log_output():
            for mode in PLANS:
                frame.explain(mode)
        source = MtlDataSource(
            {name.lower(): value for name, value in self.login.items()} | {"resources": "events"}
        )
        reader = source.reader(source.schema())
        (self.place / "partitions.pickle").write_bytes(pickle.dumps(reader.partitions()))
        self.log(f"{source} {vars(reader)}")

    def fail(self) -> None:
        """Fail in the planner, in the reader process, in reading and writing tasks, with and without the broker."""
        password = self.login["password"]
        self.fails(lambda: self.read(resources="salaries").count())
        self.fails(lambda: self.read(resources="events", passwrod=password).count())
        self.fails(lambda: self.read(resources="events", passwordEnv=VARIABLE).count())
        self.fails(lambda: self.write(resource="salaries"))
        self.fails(lambda: self.write(resource="events", includeProperties="true"))
        self.fails(lambda: self.copy("events-bad", self.login, bodyFormat="json", mode="FAILFAST"))
        self.login |= {"endpoint": "tcp://127.0.0.1:1", "requestTimeout": "100ms", "retryDeadline": "200ms"}
        self.fails(lambda: self.read(resources="events").count())
        self.fails(lambda: self.copy("events-away", self.login))

    def save_pages(self) -> None:
        """The web pages and REST answers of Spark, by file."""
        context = self.spark.sparkContext
        pages = [*PAGES, *(f"SQL/execution/?id={number}" for number in range(5))]
        pages += [f"api/v1/applications/{context.applicationId}/{answer}" for answer in ANSWERS]
        for number, page in enumerate(pages):
            try:
                with urllib.request.urlopen(f"{context.uiWebUrl}/{page}", timeout=20) as answer:
                    page_octets = answer.read()
            except urllib.error.HTTPError as error:
                page_octets = error.read()
            (self.place / f"page-{number}").write_bytes(page_octets)


def main() -> None:
    endpoint, key, password_file, directory = sys.argv[1:]
    place = Path(directory)
    (place / "events").mkdir()
    common = {"endpoint": endpoint, "user": "etl", "curveServerKey": key}
    ways = {"passwordFile": password_file, "passwordEnv": VARIABLE, "password": os.environ[VARIABLE]}
    logins = [common | {way: value} for way, value in ways.items()]
    job = Job(logins[0], place)
    for login in logins:
        job.login = login
        job.write(resource="events", createResource="true")
    job.copy("events-copy", *logins)
    job.show()
    job.fail()
    job.save_pages()
    job.spark.stop()


if __name__ == "__main__":
    main()
