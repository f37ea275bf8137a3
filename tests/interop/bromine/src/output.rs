//! Lines of JSON for the test. A test that went away takes the process with it.

use std::io::Write;

use serde_json::{json, Value};

pub fn line(value: Value) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{value}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

pub fn ready(address: &str) {
    line(json!({ "ready": address }));
}

pub fn fatal(reason: &str) {
    line(json!({ "fatal": reason }));
}

pub fn hex(data: &[u8]) -> String {
    data.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    if !text.is_ascii() || text.len() % 2 == 1 {
        return Err(format!("{text:?} is not hexadecimal"));
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).map_err(|error| error.to_string()))
        .collect()
}
