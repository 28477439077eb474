"""Blobs in an object store: an S3 server of its own (moto), and a folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import sessiontree
from sessiontree.cli import main
from sessiontree.errors import DamagedError, StoreError, UsageError, WriteError
from sessiontree.stores.blobs import blob_name
from sessiontree.stores.object_blobs import MemoryCache, ObjectBlobs, check_object_url, parse_size
from sessiontree.stores.postgres import open_postgres_repository
from sessiontree.stores.postgres.repository import PostgresRepository
from sessiontree.testing import check_blob_store

if not os.environ.get("CI"):
    pytest.importorskip("obstore", reason="no obstore")
    pytest.importorskip("moto.server", reason="no moto")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:botocore", "ignore::DeprecationWarning:moto")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield f"http://127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty bucket, found by the variables of the vendor's own tools."""
    import boto3

    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{os.urandom(4).hex()}"
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=name)
    return f"s3://{name}/sessions"


def objects(url: str, endpoint: str) -> dict[str, bytes]:
    import boto3

    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    name = url.split("/")[2]
    found = client.list_objects_v2(Bucket=name).get("Contents", [])
    return {item["Key"]: client.get_object(Bucket=name, Key=item["Key"])["Body"].read() for item in found}


def test_the_contract_of_blob_stores_holds_on_s3(bucket: str) -> None:
    check_blob_store(lambda: ObjectBlobs(bucket))


def test_the_contract_of_blob_stores_holds_in_a_folder(tmp_path: Path) -> None:
    check_blob_store(lambda: ObjectBlobs(f"file://{tmp_path}"))


def test_an_object_is_created_once_and_verified_on_read(bucket: str, endpoint: str) -> None:
    import boto3

    name = ObjectBlobs(bucket).put(b"content")
    (key,) = objects(bucket, endpoint)
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").put_object(
        Bucket=bucket.split("/")[2], Key=key, Body=b"damaged"
    )
    with pytest.raises(DamagedError, match="does not match its SHA-256"):
        ObjectBlobs(bucket).get(name)
    ObjectBlobs(bucket).put(b"content")
    assert objects(bucket, endpoint)[key] == b"damaged", "no object is overwritten"


def test_a_store_that_is_not_there_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    blobs = ObjectBlobs("s3://nowhere/x", retry_config={"max_retries": 0})
    with pytest.raises(WriteError, match="cannot store a blob"):
        blobs.put(b"x")
    with pytest.raises(StoreError, match="cannot be read"):
        blobs.get(blob_name(b"x"))


def test_contents_are_cached_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryCache(10)
    for number in range(5):
        memory.put(f"{number}", b"1234")
    assert [memory.get(f"{number}") is not None for number in range(5)] == [False, False, False, True, True]

    monkeypatch.setenv("SESSIONTREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SESSIONTREE_BLOB_CACHE", "2KB")
    blobs = ObjectBlobs(f"file://{tmp_path}/objects")
    names = [blobs.put(bytes([number]) * 900) for number in range(4)]
    cached = tmp_path / "cache" / "blobs"
    assert len([*cached.iterdir()]) == 2
    again = ObjectBlobs(f"file://{tmp_path}/objects")
    assert [again.get(name) for name in names] == [bytes([number]) * 900 for number in range(4)]
    (kept, *_) = cached.iterdir()
    kept.write_bytes(b"damaged")
    assert ObjectBlobs(f"file://{tmp_path}/objects").get(kept.name) is not None, "read from the store instead"


def test_the_database_names_the_store_of_its_blobs(
    repository: PostgresRepository, bucket: str, endpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    older = repository.blobs.put(b"in the table")
    assert main(["store", "blobs", bucket, "--home", repository.home]) == 0
    image = "aGVsbG8gd29ybGQh" * 9000
    with sessiontree.create(home=repository.home) as session:
        session.append("user", [{"type": "image", "mimeType": "image/png", "data": image}])
    assert len(objects(bucket, endpoint)) == 1
    assert repository.status().blobs == 1, "only the older one is in the table"
    other = PostgresRepository(repository.home)
    assert other.blobs.get(older) == b"in the table"
    again = sessiontree.open(str(session.ref)).context().messages[0]
    assert again.content[0].data == image  # type: ignore[union-attr]
    other.close()

    alice = open_postgres_repository(repository.add_tenant("alice"))
    name = alice.blobs.put(b"of alice")
    assert f"sessions/alice/{name[:2]}/{name}" in objects(bucket, endpoint)
    assert repository.blobs.get(name) is None, "tenants have folders of their own"
    alice.close()
    assert main(["store", "blobs", "--home", repository.home]) == 0
    repository.blobs.put(b"in the table again")
    assert repository.status().blobs == 2


def test_only_known_kinds_of_stores_are_accepted() -> None:
    for url in ("http://internal/", "s3://", "bucket", "s3://key:secret@host/bucket", "file:///a/../../etc"):
        with pytest.raises(UsageError, match="is not an object store"):
            check_object_url(url)
    assert [parse_size(text) for text in ("5", "2KB", "1.5 gb")] == [5, 2000, 1_500_000_000]
    with pytest.raises(UsageError, match="is not a size"):
        parse_size("much")
