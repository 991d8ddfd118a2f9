"""Who may see a page and press its buttons."""

import pytest

from robot_runtime.page.guard import Guard, is_loopback

HERE = Guard.at("127.0.0.1", 8080)
ANYWHERE = Guard.at("0.0.0.0", 8080)


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST:1"])
def test_this_machine_needs_no_token(host):
    assert HERE.complaint("/", {"host": host}) == ""


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "", "127.0.0.1.evil.example", "[", "10.0.0.2"]
)
def test_a_name_that_leads_here_from_outside_is_refused(host):
    assert "this machine's own names" in HERE.complaint("/feed", {"host": host})


@pytest.mark.parametrize("guard", [HERE, ANYWHERE])
def test_another_sites_page_gets_nothing(guard):
    headers = {"host": "localhost:8080", "origin": "http://evil.example"}
    assert "another site" in guard.complaint(f"/feed?token={guard.token}", headers)
    assert "another site" in guard.complaint("/feed", headers | {"origin": "null"})


def test_from_elsewhere_a_token_is_needed():
    headers = {"host": "robot:8080", "origin": "http://robot:8080"}
    assert "token" in ANYWHERE.complaint("/", headers)
    assert "token" in ANYWHERE.complaint("/?token=guessed", headers)
    assert "token" in ANYWHERE.complaint("/?token=", headers | {"cookie": "page_8080="})
    assert ANYWHERE.complaint(f"/?token={ANYWHERE.token}", headers) == ""


def test_a_cookie_stands_for_the_token():
    name, _, value = ANYWHERE.set_cookie().partition(";")[0].partition("=")
    assert ANYWHERE.complaint("/feed", {"host": "robot:8080", "cookie": f"a=b; {name}={value}"}) == ""
    assert "token" in ANYWHERE.complaint("/feed", {"host": "robot:8080", "cookie": f"{name}=x"})
    assert "token" in ANYWHERE.complaint("/feed", {"host": "robot:8080", "cookie": ";;=;\x00"})
    assert "SameSite=Strict" in ANYWHERE.set_cookie()
    assert "HttpOnly" in ANYWHERE.set_cookie()


def test_every_run_has_a_token_of_its_own():
    assert ANYWHERE.token != Guard.at("0.0.0.0", 8080).token
    assert len(ANYWHERE.token or "") >= 20


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback_is_told_from_everything_else(host, local):
    assert is_loopback(host) is local
