//! Publishing under a lease, on both databases.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test ends where it goes wrong, and says what it skips"
)]

mod support;

use std::time::Duration;

use coolant_backends::{Address, Options, SqlStore, conformance};
use coolant_core::documents::{DocumentStore, NewChunk, NewDocument, Publication};
use coolant_core::names::{DocumentId, Tenant};
use coolant_core::store::{ClaimRequest, Store};
use support::database::Database;
use support::jobs::{claim_of, job, submitted};

fn request() -> ClaimRequest {
    ClaimRequest { lease: Some(Duration::from_secs(5)), ..claim_of(1) }
}

async fn a_publication_renews_its_lease(address: Address) {
    let clock = conformance::clock();
    let options = Options { clock: Some(clock.reader()), ..Options::default() };
    let store = SqlStore::open(&address, options).await.unwrap();
    let (tenant, id) = (Tenant::default(), DocumentId::parse("a").unwrap());
    let document = NewDocument {
        tenant: tenant.clone(),
        id: id.clone(),
        bytes: b"words".to_vec(),
        content_type: None,
        filename: None,
    };
    store.put_document(document).await.unwrap();
    submitted(&store, job()).await;
    let claimed = store.claim(request()).await.unwrap().pop().unwrap();
    let publication = |lease| Publication {
        tenant: tenant.clone(),
        id: id.clone(),
        version: 1,
        pipeline: "p".into(),
        model: "m".into(),
        chunks: vec![NewChunk {
            hash: [1; 32],
            terms: "words".into(),
            text: "words".into(),
            heading: None,
            page: None,
        }],
        lease,
    };
    clock.advance(Duration::from_secs(4));
    let lease = (claimed.record.job.id, claimed.lease.token);
    store.publish(publication(lease)).await.unwrap().unwrap();
    // Two seconds after the first lease would have ended.
    clock.advance(Duration::from_secs(3));
    assert!(store.claim(request()).await.unwrap().is_empty(), "the lease was taken although it was renewed");
    clock.advance(Duration::from_secs(3));
    let taken = store.claim(request()).await.unwrap().pop().unwrap();
    assert!(store.publish(publication(lease)).await.unwrap().is_err(), "the first lease is lost");
    assert_eq!(taken.record.job.counters.lost, 1);
}

#[tokio::test]
async fn a_publication_renews_its_lease_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    a_publication_renews_its_lease(Address::Sqlite(folder.path().join("coolant.db"))).await;
}

#[tokio::test]
async fn a_publication_renews_its_lease_on_postgres() {
    let Some(database) = Database::create().await else { return };
    a_publication_renews_its_lease(database.address()).await;
    database.drop_it().await;
}
