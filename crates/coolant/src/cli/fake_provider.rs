//! `coolant fake-provider`: an OpenAI-compatible server that does as its script says, and counts.
//!
//! Always true:
//! - the same script, seed and call give the same answer, on every machine;
//! - a call is paid once its request was read to the end and is not refused, whether or not anybody gets
//!   the answer: that is how providers bill;
//! - it remembers a bounded amount, however long it runs.
//!
//! Elsewhere: what a script may say (`script`), how much fits into a window (`limit`), what is answered (`answer`),
//! what is counted (`counts`).

mod answer;
mod counts;
mod limit;
mod output;
mod script;
mod server;

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::json;
use tokio::net::TcpListener;

use super::out::Output;
use super::{CommandError, CommandResult};
use crate::worker::Shutdown;
pub(super) use counts::Counts;
pub(super) use script::{Do, Rule, Script, spoken_span};
pub(super) use server::FakeProvider;

#[derive(Debug, clap::Args)]
pub(super) struct FakeProviderArgs {
    /// Address and port, of this machine alone
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7171")]
    listen: SocketAddr,
    /// What to do when (TOML, or JSON if it ends in .json); without one every call goes well
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Changes every answer; goes before the script's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

pub(super) async fn run(args: FakeProviderArgs, output: &Output) -> CommandResult {
    if !args.listen.ip().is_loopback() {
        let text =
            format!("`--listen {}`: it takes any key, so it listens on this machine alone", args.listen);
        return Err(CommandError::Usage(text));
    }
    let mut script = match &args.script {
        Some(path) => Script::read(path)?,
        None => Script::default(),
    };
    script.seed = args.seed.unwrap_or(script.seed);
    let shutdown = Shutdown::on_signals().map_err(CommandError::system("cannot take signals"))?;
    let listener = TcpListener::bind(args.listen)
        .await
        .map_err(CommandError::system(format!("cannot listen on {}", args.listen)))?;
    let address = listener.local_addr().map_err(CommandError::system("cannot tell the own address"))?;
    let provider = FakeProvider::new(script);
    let stopping = shutdown.clone();
    let serving = provider.clone().serve(listener, async move { stopping.asked().await });
    let base_url = format!("http://{address}/v1");
    if output.is_json() {
        output.json(&json!({"base_url": base_url, "counts": format!("http://{address}/counts")}));
    } else {
        // Scripts wait for this line.
        output.line(format!("the fake provider listens on {base_url}; http://{address}/counts counts"));
    }
    serving.await;
    let counts = provider.counts();
    output.remark(format!(
        "stopped after {} calls: {} paid, {} refused, {} USD",
        counts.calls, counts.paid_calls, counts.refused_calls, counts.cost
    ));
    Ok(())
}
