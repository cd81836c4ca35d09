//! Coolant inside a program: `cargo run -p coolant --example embedded`.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use coolant::{Context, Coolant, Handler, HandlerError, async_trait};
use coolant_core::model::ModelStore;
use coolant_core::time::{Timestamp, millis_up};

struct Greet;

#[async_trait]
impl Handler for Greet {
    type Payload = String;
    type Output = String;

    fn job_type(&self) -> &str {
        "GREET"
    }

    async fn run(&self, ctx: &Context, name: String) -> Result<String, HandlerError> {
        // A later attempt gets a finished step back instead of paying again.
        ctx.step("greeting", async || Ok(format!("Hello, {name}!"))).await
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "what the example is for")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let coolant = Coolant::with_store(Arc::new(in_memory()));
    let workers = coolant.start(coolant.worker().handler(Greet))?;

    let job = coolant.submit("GREET", "Ada").key("user:42:v1").await?;
    let greeting: String = job.result(Duration::from_secs(30)).await?;
    println!("{greeting}");

    workers.stop().await?;
    Ok(())
}

/// Keeps jobs as long as the program runs.
fn in_memory() -> ModelStore {
    let since_1970 = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ModelStore::new(Arc::new(move || Timestamp::from_millis(millis_up(since_1970()))))
}
