//! The store at size: one large tenant and a hundred small ones.

use std::time::{Duration, Instant};

use coolant_backends::{Address, Options, SqlStore};
use coolant_core::documents::{DocumentStore, SearchRequest};
use coolant_core::names::Tenant;
use tokio_postgres::Client;

use crate::data::{self, Kind, Numbers};
use crate::support::documents::Documents;

const DIMENSIONS: usize = 512;
const DOCUMENT: usize = 10_000;

pub(crate) async fn measure(client: &Client, server: &str, count: usize) {
    client.batch_execute("DROP DATABASE IF EXISTS bench_store WITH (FORCE)").await.unwrap();
    client.batch_execute("CREATE DATABASE bench_store").await.unwrap();
    let (host, _) = server.rsplit_once('/').unwrap();
    let address = Address::Postgres(format!("{host}/bench_store"));
    let store = SqlStore::open(&address, Options::default()).await.unwrap();
    let large = Documents { store, tenant: Tenant::parse("large").unwrap() };
    let vectors = data::vectors(Kind::Spelling, count, DIMENSIONS);
    let texts: Vec<String> = texts(count);
    let chunks: Vec<_> = texts.iter().map(String::as_str).zip(vectors.iter().map(Vec::as_slice)).collect();

    println!(
        "\nThe store, {count} chunks of 80 words and {DIMENSIONS} dimensions, 100 tenants of 200 more\n"
    );
    for (n, chunks) in chunks.chunks(DOCUMENT).enumerate() {
        let name = format!("document{n}");
        large.put(&name, &name).await;
        for chunks in chunks.chunks(500) {
            large.store.save_vectors(large.batch(chunks, None)).await.unwrap().unwrap();
        }
        let began = Instant::now();
        large.publish(&name, 1, chunks).await.unwrap();
        if n == 0 {
            println!("publishing {} chunks: {:.2} s", chunks.len(), began.elapsed().as_secs_f64());
        }
    }
    for n in 0..100 {
        large.of(&format!("small{n}")).add("document", &chunks[n * 20..n * 20 + 200]).await;
    }
    let small = large.of("small7");
    let question = Some(vectors[17].as_slice());
    println!("\n| search, ms | large tenant | small tenant |\n|---|---|---|");
    report("vector, nothing indexed yet", &large, &small, &large.request(&[], question), 3).await;
    let began = Instant::now();
    large.tend().await;
    let tended = began.elapsed().as_secs_f64();
    report("vector, all indexed", &large, &small, &large.request(&[], question), 50).await;
    for (name, words) in [
        ("words: three rare", ["w9001", "w7777", "w8123"]),
        ("words: one in every chunk, two rare", ["w0", "w7777", "w8123"]),
        ("words: three in nearly every chunk", ["w0", "w1", "w2"]),
    ] {
        report(name, &large, &small, &large.request(&words, None), 10).await;
    }
    println!("\ncopies and the index of {} chunks: {tended:.0} s", count + 20_000);
    client.batch_execute("DROP DATABASE bench_store WITH (FORCE)").await.unwrap();
}

async fn report(name: &str, large: &Documents, small: &Documents, request: &SearchRequest, times: usize) {
    let time = async |documents: &Documents| {
        let request = SearchRequest { tenant: documents.tenant.clone(), candidates: 50, ..request.clone() };
        let mut took = Vec::new();
        for _ in 0..times {
            let began = Instant::now();
            documents.store.search(request.clone()).await.unwrap();
            took.push(began.elapsed());
        }
        took.sort();
        took[times / 2]
    };
    let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
    println!("| {name} | {:.1} | {:.1} |", ms(time(large).await), ms(time(small).await));
}

/// Chunks of 80 words, some of them much more frequent than others: `w0` is in all.
fn texts(count: usize) -> Vec<String> {
    let mut numbers = Numbers::new(5);
    (0..count)
        .map(|n| {
            let words: Vec<String> =
                (0..80).map(|_| format!("w{}", (10_000_f32.powf(numbers.unit()) - 1.0) as usize)).collect();
            format!("w0 c{n} {}", words.join(" "))
        })
        .collect()
}
