//! The child of the parser on its own, for the tests of this crate. The product is its own child.
//!
//! With `misbehave` as its first argument it does instead what a reader does that a hostile file took over.

use std::hint::black_box;
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next().as_deref()) {
        (Some("misbehave"), Some(how)) => misbehave(how),
        _ => coolant_parse::child_main(),
    }
}

fn misbehave(how: &str) -> ExitCode {
    match how {
        "spin" => loop {
            std::hint::spin_loop();
        },
        "flood" => {
            let mut out = io::stdout().lock();
            while out.write_all(&[b'x'; 4096]).is_ok() {}
        }
        "complain" => {
            let mut out = io::stderr().lock();
            for _ in 0..1000 {
                let _ = out.write_all(&[b'x'; 4096]);
            }
            std::process::abort();
        }
        "count-variables" => {
            let variables = std::env::vars_os().count();
            let message = format!("{variables} variables");
            let _ =
                writeln!(io::stdout(), "{{\"fault\":{{\"fault\":\"no_text\",\"message\":\"{message}\"}}}}");
        }
        "garble" => {
            let _ = writeln!(io::stdout(), "{{\"page\":");
            loop {
                std::thread::park();
            }
        }
        "overflow" => {
            black_box(descend(black_box(1)));
        }
        "abort" => std::process::abort(),
        "panic" => return ExitCode::from(101),
        _ => {}
    }
    ExitCode::SUCCESS
}

fn descend(depth: u64) -> u64 {
    let frame = black_box([depth; 512]);
    if depth == 0 { 0 } else { descend(depth + 1) + frame[0] }
}
