//! Coolant inside a program of your own: `cargo run -p coolant --example embedded`. Run it twice.
#![expect(clippy::print_stdout, reason = "what the example is for")]

use std::time::Duration;

use coolant::{Context, Coolant, Handler, HandlerError, async_trait};

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
        ctx.step("greeting", async || Ok(expensive(&name))).await
    }
}

fn expensive(name: &str) -> String {
    println!("a paid call");
    format!("Hello, {name}!")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let coolant = Coolant::open("sqlite:coolant-data/greetings.db").await?;
    let workers = coolant.start(coolant.worker().handler(Greet))?;
    // The same key is the same job, also in the next run of this program.
    let job = coolant.submit("GREET", "Ada").key("user:42:v1").await?;
    println!("{}", job.result::<String>(Duration::from_secs(30)).await?);
    workers.stop().await?;
    Ok(())
}
