import pytest
from cryptography import x509

from deployment.layout import Layout
from deployment.names import certificate_name
from deployment.pki import certificate_names, initialise
from simulations import cli


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("fl.example.org", "fl.example.org"),
        ("FL.Example.ORG.", "fl.example.org"),
        ("*.example.org", "*.example.org"),
        ("my_host", "my_host"),
        ("192.0.2.7", "192.0.2.7"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("[2001:DB8:0::7]", "2001:db8::7"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("bu\u0308cher.example", "xn--bcher-kva.example"),
        ("straße.example", "xn--strae-oqa.example"),  # as browsers and httpx have it, not as Python's own codec
    ],
)
def test_accepted(given, kept):
    assert certificate_name(given) == kept
    x509.DNSName(kept)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("", "host name"),
        (" ", "host name"),
        ("fl.example.org:8000", "without a port"),
        ("[::1]:8000", "without a port"),
        ("127.0.0.1:8000", "without a port"),
        ("https://fl.example.org", "host name"),
        ("fl example.org", "host name"),
        ("fl..example.org", "host name"),
        ("-fl.example.org", "host name"),
        ("a.*.example.org", "host name"),
        ("10.0.0.300", "host name"),
        ("[10.0.0]", "host name"),
        ("fe80::1%eth0", "host name"),
        ("a" * 64, "host name"),
        ("a." * 130 + "org", "host name"),
        ("😀.example", "Codepoint"),
    ],
)
def test_refused_by_name_before_anything_is_written(given, named, tmp_path, capsys):
    folder = tmp_path / "deploy"
    assert cli.main(["deploy", "init", "--folder", str(folder), "--nodes", "1", f"--name={given}"]) == 2
    said = capsys.readouterr().err
    assert f"Received {given!r}" in said
    assert "--name must be" in said
    assert named in said
    assert not folder.exists()


def test_the_certificate_is_for_what_the_name_stands_for(tmp_path):
    layout = Layout(tmp_path / "deploy")
    initialise(layout, nodes=1, names=["[::1]", "bücher.example"])
    assert certificate_names(layout.server_certificate)[-2:] == ("::1", "xn--bcher-kva.example")
    assert initialise(layout, nodes=1, names=["::1", "BÜCHER.example"]) == []  # the same names: nothing is lacking
