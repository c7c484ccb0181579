"""The few HTTP calls that are not OpenAI's, and what to say when a server does not answer as it should."""

from __future__ import annotations

from typing import Any

import requests

from dflash_lab.access import access
from dflash_lab.errors import LabError
from dflash_lab.servers.address import check_host, normal_url

QUICK_S = 10.0


class Http:
    """GET, and POST with a streamed answer, against one server.

    Every failure becomes a LabError that says what was asked and what came.
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        access().check_server()
        self.url = normal_url(url)
        check_host(self.url)
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def text(self, path: str, timeout_s: float = QUICK_S) -> str:
        """A page's text."""
        return self._ask("GET", path, timeout_s).text

    def json(self, path: str, timeout_s: float = QUICK_S) -> Any:
        """A page's JSON."""
        response = self._ask("GET", path, timeout_s)
        try:
            return response.json()
        except ValueError as error:
            raise LabError(
                f"{self.url}{path} answered with something that is not JSON: {response.text[:80]!r}",
                "Check that the address is a model server's, and not another program's",
            ) from error

    def stream(self, path: str, body: dict[str, Any], timeout_s: float) -> requests.Response:
        """The answer to a JSON question, to be read as it comes: a context manager that closes the connection."""
        return self._ask("POST", path, timeout_s, body)

    def _ask(self, verb: str, path: str, timeout_s: float, body: dict[str, Any] | None = None) -> requests.Response:
        address = f"{self.url}{path}"
        try:
            response = requests.request(
                verb,
                address,
                json=body,
                headers=self._headers,
                timeout=timeout_s,
                allow_redirects=False,
                stream=body is not None,
            )
        except requests.Timeout as error:
            raise LabError(
                f"{address} did not answer within {timeout_s:g} s", "See whether the server is busy or hangs"
            ) from error
        except requests.RequestException as error:
            raise LabError(f"Nothing answers at {self.url}", "Start the server, or correct the address") from error
        if response.is_redirect:
            raise LabError(f"{address} redirects to another address", "Give the address that it redirects to")
        if not response.ok:
            raise refusal(response.status_code, path, response.text)
        return response


def refusal(status: int, path: str, body: str) -> LabError:
    """A 4xx or 5xx as one sentence; the server's own words are kept, shortened."""
    said = " ".join(body.split())[:200]
    words = f"The server answered {status} to {path}" + (f": {said}" if said else "")
    fixes = {
        401: "Give the server's API key",
        403: "Give an API key that may use this model",
        404: "Check the address and the model's name",
        429: "Send fewer requests at once",
    }
    fix = fixes.get(status) or ("Read the server's log" if status >= 500 else "Correct what was sent")
    return LabError(words, fix)
