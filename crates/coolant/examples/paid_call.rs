//! A paid call from a handler, to any server that speaks OpenAI's chat completions:
//!
//! ```sh
//! coolant fake-provider                               # in one terminal
//! cargo run -p coolant --example paid_call            # in another; run it twice
//! ```
#![expect(clippy::print_stdout, reason = "what the example is for")]

use std::time::Duration;

use coolant::{CallError, Context, Coolant, Evidence, Handler, HandlerError, Paid, PaidCall, async_trait};
use serde_json::{Value, json};

const MODEL: &str = "gpt-4.1-mini";

struct Summarize {
    base_url: String,
    client: reqwest::Client,
}

#[async_trait]
impl Handler for Summarize {
    type Payload = String;
    type Output = String;

    fn job_type(&self) -> &str {
        "SUMMARIZE"
    }

    async fn run(&self, ctx: &Context, text: String) -> Result<String, HandlerError> {
        // By the estimate, limits and budgets are asked before the call; what it really used is booked after it.
        let call = PaidCall::new("summary", format!("openai/{MODEL}")).tokens(text.len() as u64 / 3, 200);
        ctx.paid_call(call, async || self.ask(&text).await).await
    }
}

impl Summarize {
    async fn ask(&self, text: &str) -> Result<Paid<String>, CallError> {
        println!("a paid call");
        let question = format!("Summarize in one sentence: {text}");
        let body = json!({"model": MODEL, "messages": [{"role": "user", "content": question}]});
        let url = format!("{}/chat/completions", self.base_url);
        let answer = self.client.post(url).json(&body).send().await?;
        let status = Some(answer.status().as_u16());
        let text_of =
            |value: &reqwest::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers =
            answer.headers().iter().map(|(name, value)| (name.to_string(), text_of(value))).collect();
        let answer = Evidence::from_bytes(status, headers, &answer.bytes().await?);
        match answer.body.pointer("/choices/0/message/content").and_then(Value::as_str) {
            Some(said) if status == Some(200) => {
                Ok(Paid::new(said.to_owned()).answer(&answer.body).headers(answer.headers))
            }
            // Coolant reads what went wrong, and whom it concerns.
            _ => Err(answer.into()),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // This repository builds its HTTP client without a TLS library of its own choice; yours needs no such line.
    coolant_ai::embed::install_tls_provider();
    let base_url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:7171/v1".to_owned());
    let handler = Summarize { base_url, client: reqwest::Client::new() };

    let coolant = Coolant::open("sqlite:coolant-data/summaries.db").await?;
    let workers = coolant.start(coolant.worker().handler(handler))?;
    // Naming the upstream lets the job wait, unclaimed, while that is closed.
    let job = coolant.submit("SUMMARIZE", "Leases that only success releases.").key("text:7:v1");
    let job = job.upstream(format!("openai/{MODEL}")).await?;
    println!("{}", job.result::<String>(Duration::from_secs(300)).await?);
    workers.stop().await?;
    Ok(())
}
