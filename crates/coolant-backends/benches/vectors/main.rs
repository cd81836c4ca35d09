//! Vector search on PostgreSQL: what half precision and HNSW cost in recall and gain in time.
//!
//! ```text
//! scripts/services run -- cargo bench -p coolant-backends --bench vectors
//! ```
//!
//! First table: pgvector by itself. Recall@10 is against the exact ranking of 32-bit floats; times are medians of 100 searches, in
//! milliseconds. Then the store with as many chunks: publishing, tending, and searches by vector and by
//! words. Arguments: how many vectors (20000); `store` for the store alone.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement ends where it goes wrong, and prints"
)]

mod data;
mod store;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use data::Kind;
use tokio_postgres::{Client, NoTls};

const QUESTIONS: usize = 100;

#[tokio::main]
async fn main() {
    let count = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(20_000);
    let Ok(server) = std::env::var("COOLANT_TEST_POSTGRES") else {
        println!("skipped: COOLANT_TEST_POSTGRES names no server (scripts/services run -- …)");
        return;
    };
    let (client, connection) = tokio_postgres::connect(&server, NoTls).await.unwrap();
    tokio::spawn(connection);
    if !std::env::args().any(|argument| argument == "store") {
        pgvector_alone(&client, count).await;
    }
    store::measure(&client, &server, count).await;
}

async fn pgvector_alone(client: &Client, count: usize) {
    client.batch_execute("CREATE EXTENSION IF NOT EXISTS vector; SET jit = off").await.unwrap();
    println!("{count} vectors, {QUESTIONS} questions\n");
    println!("| vectors | type | search | recall@10 | ms | build s | index MB |");
    println!("|---|---|---|---|---|---|---|");
    for (kind, dimensions) in
        [(Kind::Meaning, 384), (Kind::Spelling, 512), (Kind::Meaning, 1536), (Kind::Meaning, 3072)]
    {
        let mut all = data::vectors(kind, count + QUESTIONS, dimensions);
        let questions = all.split_off(count);
        let truth: Vec<Vec<usize>> = questions.iter().map(|question| data::nearest(&all, question)).collect();
        for (precision, most) in [("halfvec", 4000), ("vector", 2000)] {
            let run = Run { client, name: format!("{kind:?} {dimensions}"), precision, dimensions };
            run.load(&all).await;
            run.report("exact", &questions, &truth, None).await;
            if dimensions > most {
                continue;
            }
            let began = Instant::now();
            run.build().await;
            let built = (began.elapsed(), run.index_mb().await);
            for ef in [40, 100, 200, 400] {
                client.batch_execute(&format!("SET hnsw.ef_search = {ef}")).await.unwrap();
                run.report(&format!("HNSW, ef_search {ef}"), &questions, &truth, Some(built)).await;
            }
        }
    }
}

struct Run<'a> {
    client: &'a Client,
    name: String,
    precision: &'static str,
    dimensions: usize,
}

impl Run<'_> {
    async fn load(&self, all: &[Vec<f32>]) {
        let Self { precision, dimensions, .. } = self;
        let make = format!(
            "DROP TABLE IF EXISTS bench_vectors; \
             CREATE TABLE bench_vectors (n BIGINT, v {precision}({dimensions})) WITH (toast_tuple_target = 8160)"
        );
        self.client.batch_execute(&make).await.unwrap();
        let insert = format!(
            "INSERT INTO bench_vectors SELECT n, v::{precision} FROM unnest($1::bigint[], $2::text[]) r(n, v)"
        );
        for (start, part) in all.chunks(500).enumerate() {
            let (numbers, texts): (Vec<i64>, Vec<String>) =
                part.iter().enumerate().map(|(n, vector)| ((start * 500 + n) as i64, text(vector))).unzip();
            self.client.execute(&insert, &[&numbers, &texts]).await.unwrap();
        }
        self.client.batch_execute("VACUUM ANALYZE bench_vectors").await.unwrap();
    }

    async fn build(&self) {
        let text =
            format!("CREATE INDEX bench_hnsw ON bench_vectors USING hnsw (v {}_cosine_ops)", self.precision);
        self.client.batch_execute(&text).await.unwrap();
    }

    async fn index_mb(&self) -> i64 {
        let text = "SELECT pg_relation_size('bench_hnsw') / 1048576";
        self.client.query_one(text, &[]).await.unwrap().get(0)
    }

    async fn report(
        &self,
        how: &str,
        questions: &[Vec<f32>],
        truth: &[Vec<usize>],
        built: Option<(Duration, i64)>,
    ) {
        let Self { client, name, precision, dimensions } = self;
        let search = format!(
            "SELECT n FROM bench_vectors ORDER BY v <=> $1::text::{precision}({dimensions}) LIMIT 10"
        );
        let statement = client.prepare(&search).await.unwrap();
        let (mut hits, mut times) = (0, Vec::new());
        for (question, truth) in questions.iter().zip(truth) {
            let question = text(question);
            let began = Instant::now();
            let rows = client.query(&statement, &[&question]).await.unwrap();
            times.push(began.elapsed());
            hits += rows.iter().filter(|row| truth.contains(&(row.get::<_, i64>(0) as usize))).count();
        }
        times.sort();
        let mut line = String::new();
        let recall = hits as f64 / (questions.len() * 10) as f64;
        let ms = times[times.len() / 2].as_secs_f64() * 1000.0;
        write!(line, "| {name} | {precision} | {how} | {recall:.3} | {ms:.1} |").unwrap();
        match built {
            Some((took, mb)) => write!(line, " {:.0} | {mb} |", took.as_secs_f64()).unwrap(),
            None => line.push_str(" | |"),
        }
        println!("{line}");
    }
}

fn text(vector: &[f32]) -> String {
    let numbers: Vec<String> = vector.iter().map(ToString::to_string).collect();
    format!("[{}]", numbers.join(","))
}
