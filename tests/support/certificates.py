"""Certificates made for one run: an authority, and what it signed. Made by openssl, as an operator would."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

KEY_PASSWORD = "key-password"


@dataclass(frozen=True)
class Certificate:
    certificate: Path
    key: Path
    """PKCS#8, without a password."""

    @property
    def encrypted_key(self) -> Path:
        """The same key behind KEY_PASSWORD."""
        return self.key.with_suffix(".encrypted.pem")


@dataclass(frozen=True)
class Authority:
    certificate: Path
    _key: Path

    def sign(self, name: str, alternative_names: str, *, days: int = 2, subject: str | None = None) -> Certificate:
        """A certificate for `name`; the alternative names are written as in "IP:127.0.0.1,DNS:localhost".

        With less than 0 days it has expired. `subject` is written as in "/O=us/CN=me".
        """
        directory = self.certificate.parent
        signed = Certificate(directory / f"{name}.pem", directory / f"{name}.key.pem")
        request, extensions = directory / f"{name}.csr", directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative_names}\n")
        _openssl("req", "-new", "-newkey", "ec", *_CURVE, "-nodes", "-keyout", signed.key, "-out", request,
                 "-subj", subject or f"/CN={name}")  # fmt: skip
        _openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial",
                 "-days", str(days), "-extfile", extensions, "-out", signed.certificate)  # fmt: skip
        _openssl("pkcs8", "-topk8", "-in", signed.key, "-out", signed.encrypted_key, "-passout", f"pass:{KEY_PASSWORD}")
        return signed


def make_authority(directory: Path, name: str = "authority") -> Authority:
    authority = Authority(directory / f"{name}.pem", directory / f"{name}.key.pem")
    _openssl("req", "-x509", "-newkey", "ec", *_CURVE, "-nodes", "-keyout", authority._key,
             "-out", authority.certificate, "-days", "2", "-subj", f"/CN={name}")  # fmt: skip
    return authority


_CURVE = ("-pkeyopt", "ec_paramgen_curve:P-256")


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
