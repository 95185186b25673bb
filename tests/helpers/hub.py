"""A stand-in for the hub: the part of its HTTP interface that `huggingface_hub` needs to push, find and download a model."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class Hub(ThreadingHTTPServer):
    """Repositories in memory: their branches with the files of each, and whether they are private."""

    def __init__(self, token: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token = token
        self.repositories: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def commit_of(self, name: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """The commit of a branch, or one that is named by its hash, and its files."""
        branches = self.repositories[name]["branches"]
        commits = {branch: (_hash(files), files) for branch, files in branches.items()}
        return next((commit for branch, commit in commits.items() if revision in (branch, commit[0])), None)


@contextmanager
def serving(token: str = "hf_secret") -> Iterator[Hub]:
    """A hub for the length of a `with` block."""
    with Hub(token) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        yield hub
        hub.shutdown()


def _hash(files: dict[str, bytes]) -> str:
    return hashlib.sha1(b"".join(name.encode() + files[name] for name in sorted(files))).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self._begin()
        match path.strip("/").split("/"):
            case ["api", "models", owner, name, *rest]:
                self._about(f"{owner}/{name}", rest)
            case [owner, name, "resolve", revision, *file]:
                self._file(f"{owner}/{name}", unquote(revision), "/".join(file))
            case _:
                self._answer(404, {"error": f"no {path}"})

    def do_POST(self) -> None:
        path = self._begin()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != f"Bearer {self.server.token}":
            self._answer(401, {"error": "a token is needed"})
            return
        match path.strip("/").split("/"):
            case ["api", "repos", "create"]:
                told = json.loads(body)
                name = f"{told['organization']}/{told['name']}"
                private = told.get("private", told.get("visibility") == "private")  # until huggingface_hub 1, and since
                self.server.repositories[name] = {"private": private, "branches": {"main": {}}}
                self._answer(200, {"url": f"{self.server.url}/{name}"})
            case ["api", "validate-yaml"]:
                self._answer(200, {"errors": [], "warnings": []})
            case ["api", "models", owner, name, "branch", branch]:
                branches = self.server.repositories[f"{owner}/{name}"]["branches"]
                branches[unquote(branch)] = dict(branches["main"])
                self._answer(201, {})
            case ["api", "models", _, _, "preupload", _]:
                modes = {"uploadMode": "regular", "shouldIgnore": False, "oid": None}
                self._answer(200, {"files": [{"path": file["path"], **modes} for file in json.loads(body)["files"]]})
            case ["api", "models", owner, name, "commit", branch]:
                files = self.server.repositories[f"{owner}/{name}"]["branches"][unquote(branch)]
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "file":
                        files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                commit = _hash(files)
                self._answer(
                    200, {"commitUrl": f"{self.server.url}/{owner}/{name}/commit/{commit}", "commitOid": commit}
                )
            case _:
                self._answer(404, {"error": f"no {path}"})

    def _begin(self) -> str:
        path = urlsplit(self.path).path
        self.server.asked.append(f"{self.command} {path}")
        return path

    def _about(self, name: str, rest: list[str]) -> None:
        if (commit := self._commit(name, unquote(rest[1]) if len(rest) > 1 else "main")) is None:
            return
        sha, files = commit
        match rest:
            case ["tree", *_]:
                entries = [
                    {"type": "file", "path": file, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                    for file, content in files.items()
                ]
                self._answer(200, entries)
            case _:
                siblings = [{"rfilename": file} for file in files]
                about = {"_id": name, "id": name, "modelId": name, "sha": sha, "siblings": siblings, "tags": []}
                self._answer(200, {**about, "private": self.server.repositories[name]["private"]})

    def _file(self, name: str, revision: str, file: str) -> None:
        if (commit := self._commit(name, revision)) is None:
            return
        sha, files = commit
        if file not in files:
            self._answer(404, {}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": sha})
        else:
            etag = hashlib.sha1(files[file]).hexdigest()
            self._answer(200, files[file], {"X-Repo-Commit": sha, "ETag": f'"{etag}"'})

    def _commit(self, name: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """A commit that the client may see; else it is told why not."""
        repository = self.server.repositories.get(name)
        allowed = self.headers.get("Authorization") == f"Bearer {self.server.token}"
        if repository is None or (repository["private"] and not allowed):
            self._answer(401, {}, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
            return None
        if (commit := self.server.commit_of(name, revision)) is None:
            self._answer(404, {}, {"X-Error-Code": "RevisionNotFound"})
        return commit

    def _answer(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
