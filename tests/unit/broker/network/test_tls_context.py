"""Certificates that can be used and those that cannot, and the names in them."""

import dataclasses
import ssl
from pathlib import Path

import pytest

from holdfast.broker.config.schema import ConfigError
from holdfast.broker.config.security import TlsSettings
from holdfast.broker.network.tls_context import make_ssl_context, principal_of
from tests.support.certificates import KEY_PASSWORD, Certificate, make_authority


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_authority(tmp_path_factory.mktemp("certificates")).sign("broker", "IP:127.0.0.1")


@pytest.fixture
def settings(certificate: Certificate) -> TlsSettings:
    return TlsSettings(certificate=certificate.certificate, key=certificate.key)


def test_nothing_older_than_tls_1_2_is_spoken(settings: TlsSettings) -> None:
    context = make_ssl_context(settings)
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert context.options & ssl.OP_NO_RENEGOTIATION
    only = make_ssl_context(dataclasses.replace(settings, versions=("TLSv1.3",)))
    assert only.minimum_version == ssl.TLSVersion.TLSv1_3


def test_certificate_and_key_may_be_one_file_and_the_key_may_be_encrypted(
    certificate: Certificate, tmp_path: Path
) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.encrypted_key.read_bytes() + certificate.certificate.read_bytes())
    make_ssl_context(TlsSettings(certificate=both, key_password=KEY_PASSWORD))
    with pytest.raises(ConfigError, match=r"is encrypted: set ssl\.key\.password"):
        make_ssl_context(TlsSettings(certificate=both))
    with pytest.raises(ConfigError, match="cannot use a certificate and its key"):
        make_ssl_context(TlsSettings(certificate=both, key_password="wrong"))


def test_what_cannot_be_used_is_one_sentence(settings: TlsSettings, tmp_path: Path) -> None:
    cut, other = tmp_path / "cut.pem", make_authority(tmp_path).sign("other", "IP:127.0.0.1")
    cut.write_bytes(settings.certificate.read_bytes()[:100])
    for changes, said in (
        ({"certificate": tmp_path / "nowhere.pem"}, "cannot read a certificate.*No such file"),
        ({"certificate": cut}, "not valid PEM"),
        ({"certificate": other.certificate}, "key values mismatch"),
        ({"authorities": cut}, "certificates of authorities"),
        ({"authorities": tmp_path / "nowhere.pem"}, "cannot read certificates of authorities"),
        ({"cipher_suites": ("NONSENSE",)}, "none that this OpenSSL knows: NONSENSE"),
    ):
        with pytest.raises(ConfigError, match=said):
            make_ssl_context(dataclasses.replace(settings, **changes))


def test_the_suites_of_tls_1_3_may_be_named_as_well(settings: TlsSettings) -> None:
    suites = ("TLS_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384")
    context = make_ssl_context(dataclasses.replace(settings, cipher_suites=suites))
    old = {one["name"] for one in context.get_ciphers() if one["protocol"] == "TLSv1.2"}
    assert old == {"ECDHE-ECDSA-AES256-GCM-SHA384"}


@pytest.mark.parametrize(
    ("subject", "principal"),
    [
        ([[("countryName", "IS")], [("organizationName", "Us")], [("commonName", "me")]], "User:CN=me,O=Us,C=IS"),
        ([[("commonName", "a,b+c")]], "User:CN=a\\,b\\+c"),
        ([[("commonName", " a ")]], "User:CN=\\ a\\ "),
        ([[("commonName", "#a")]], "User:CN=\\#a"),
        ([[("commonName", "a"), ("userId", "7")]], "User:CN=a+UID=7"),
    ],
)
def test_a_name_is_written_as_java_writes_it(subject: list[list[tuple[str, str]]], principal: str) -> None:
    assert principal_of({"subject": subject}) == principal


def test_a_client_without_a_certificate_has_no_name() -> None:
    assert principal_of(None) is None
    assert principal_of({}) is None
