//! A peer of the crate bromine, driven by a test: commands come in and what happens goes out,
//! one JSON object a line. The end of standard input ends the process.
//!
//!     bromine-peer --version 0.17|0.22 server --listen tcp://HOST:PORT|unix://PATH
//!     bromine-peer --version 0.17|0.22 client --connect tcp://HOST:PORT|unix://PATH
//!
//! Port 0 takes a free one; the line `ready` tells which.

// peer.rs and load.rs are read twice on purpose: once for each version's types.
#![allow(clippy::duplicate_mod)]

mod address;
mod output;
mod v0_17;
mod v0_22;

use std::io::BufRead;
use std::process::ExitCode;

use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver};

use address::Address;

const USAGE: &str = "bromine-peer --version 0.17|0.22 (server --listen | client --connect) ADDRESS";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    match runtime.block_on(run(&words)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            output::fatal(&reason);
            ExitCode::FAILURE
        }
    }
}

async fn run(words: &[&str]) -> Result<(), String> {
    let (version, role, address) = match words {
        ["--version", version, role @ "server", "--listen", address]
        | ["--version", version, role @ "client", "--connect", address] => {
            (*version, *role, address.parse::<Address>()?)
        }
        _ => return Err(USAGE.to_owned()),
    };
    let commands = lines_of_stdin();
    match (version, role) {
        ("0.17", "server") => v0_17::peer::serve(address, commands).await,
        ("0.17", _) => v0_17::peer::connect(address, commands).await,
        ("0.22", "server") => v0_22::peer::serve(address, commands).await,
        ("0.22", _) => v0_22::peer::connect(address, commands).await,
        _ => Err(format!("version {version} is not one of 0.17, 0.22")),
    }
}

/// A thread reads: tokio's own standard input would keep the runtime from ending.
fn lines_of_stdin() -> UnboundedReceiver<String> {
    let (sender, lines) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}
