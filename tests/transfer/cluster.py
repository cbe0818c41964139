"""A PostgreSQL server of the tests' own, on a socket in a folder of its own."""

import contextlib
import glob
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

from loopwright.transfer.records.sql.postgresql import SCHEMA


def programs():
    """The folder of the server's programs, the newest; None where there is none."""
    found = sorted(
        glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda p: int(p.split("/")[4])
    )
    path = found[-1] if found else shutil.which("initdb")
    return None if path is None else Path(path).parent


class Cluster:
    """A server that its owner `loopwright` needs no password for, but the user `someone` does."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="loopwright-pg-"))
        if os.geteuid() == 0:  # which the server refuses to be
            shutil.chown(self.folder, "postgres")
        self._run("initdb", "-U", "loopwright", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        rules = self.folder / "data" / "pg_hba.conf"
        rules.write_text(f"local all someone scram-sha-256\n{rules.read_text()}")
        self.start()

    def _run(self, program, *args):
        words = [str(programs() / program), "-D", str(self.folder / "data"), *args]
        if os.geteuid() == 0:
            words = ["runuser", "-u", "postgres", "--", *words]
        subprocess.run(words, check=True, cwd="/", stdout=subprocess.DEVNULL, timeout=120)

    def start(self):
        own = f"-k {self.folder} -c listen_addresses='' -c fsync=off"
        self._run("pg_ctl", "-w", "-l", str(self.folder / "log"), "-o", own, "start")

    def stop(self):
        self._run("pg_ctl", "-w", "-m", "fast", "stop")

    def runs(self):
        return (self.folder / "data" / "postmaster.pid").exists()

    def restart(self):
        self.stop()
        self.start()

    def kill(self):
        """Kill the server and all of its processes at once, and wait for their end."""
        parent = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        for pid in (parent, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while any(map(_runs, (parent, *map(int, children)))):
            time.sleep(0.01)
        # Where nobody waits for the end of the server, its number is not free, so it seems to run.
        for left in ("data/postmaster.pid", ".s.PGSQL.5432.lock"):
            (self.folder / left).unlink()

    def remove(self):
        with contextlib.suppress(subprocess.CalledProcessError):
            self._run("pg_ctl", "-w", "-m", "immediate", "stop")
        shutil.rmtree(self.folder)

    def url(self, user="loopwright", database="postgres"):
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def run(self, *statements):
        """Run statements as the owner; the rows of the last."""
        with psycopg.connect(
            host=str(self.folder), user="loopwright", dbname="postgres", autocommit=True
        ) as connection:
            for statement in statements:
                done = connection.execute(statement)
            return done.fetchall() if done.description else []

    def empty(self):
        self.run(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


def _runs(pid):
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
