//! The peer itself: handlers, server and client. Part of both versions' modules; what differs
//! between the versions it takes from the module around it.
//!
//! A client's commands: `{"emit": NAME, "tag": ANY, "namespace": NAME, "payload": PAYLOAD,
//! "wait": "reply" | "stream", "read": "serde" | "tandem" | "raw", "timeout_ms": N}`; all but
//! `emit` may be left out. They run at the same time, and what they say carries their tag.

use std::time::Duration;

use serde_json::{json, Value};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc::UnboundedReceiver;

use super::bromine::error_event::ErrorEventData;
use super::bromine::prelude::*;
use super::load::Load;
use super::{done, done_with, replies, type_of, Announced, Outcome};
use crate::address::Address;
use crate::output::{self, hex};

type Serde = SerdePayload<Value>;

/// One event to emit, and how long to wait for what comes back.
pub struct Emission {
    pub namespace: Option<String>,
    pub name: String,
    pub load: Load,
    pub timeout: Duration,
}

pub async fn serve(
    address: Address,
    mut commands: UnboundedReceiver<String>,
) -> Result<(), String> {
    let listening = async {
        match address {
            Address::Tcp(address) => {
                with_handlers::<Announced<TcpListener>>(address)
                    .build_server()
                    .await
            }
            Address::Unix(path) => {
                with_handlers::<Announced<UnixListener>>(path)
                    .build_server()
                    .await
            }
        }
    };
    tokio::select! {
        ended = listening => Err(format!("the server ended: {ended:?}")),
        () = async { while commands.recv().await.is_some() {} } => Ok(()),
    }
}

pub async fn connect(
    address: Address,
    mut commands: UnboundedReceiver<String>,
) -> Result<(), String> {
    let connected = match address {
        Address::Tcp(address) => with_handlers::<TcpListener>(address).build_client().await,
        Address::Unix(path) => with_handlers::<UnixListener>(path).build_client().await,
    };
    let ctx = connected.map_err(|error| format!("{error:?}"))?;
    output::line(json!({ "connected": true }));
    while let Some(line) = commands.recv().await {
        tokio::spawn(run(ctx.clone(), line));
    }
    Ok(())
}

async fn run(ctx: Context, line: String) {
    let command: Value = serde_json::from_str(&line).unwrap_or_default();
    let tag = &command["tag"];
    let say = |key: &str, value: Value| output::line(json!({ "tag": tag, key: value }));
    let reading = command["read"].as_str().unwrap_or("serde");
    if let Err(reason) = emit(&ctx, &command, |reply| match reply {
        Ok(event) => say("reply", described(&event, reading)),
        Err(IPCError::ErrorEvent(data)) => {
            say(
                "error",
                json!({ "code": data.code, "message": data.message }),
            );
        }
        Err(error) => say("failed", json!(format!("{error:?}"))),
    })
    .await
    {
        say("failed", json!(reason));
    }
    say("finished", json!(true));
}

async fn emit(
    ctx: &Context,
    command: &Value,
    mut seen: impl FnMut(IPCResult<Event>),
) -> Result<(), String> {
    let emission = Emission {
        namespace: command["namespace"].as_str().map(str::to_owned),
        name: command["emit"]
            .as_str()
            .ok_or("what is to be emitted?")?
            .to_owned(),
        load: Load::parse(&command["payload"])?,
        timeout: Duration::from_millis(command["timeout_ms"].as_u64().unwrap_or(10_000)),
    };
    if command["wait"] == "stream" {
        return replies(ctx, emission, seen).await;
    }
    let emitted = match emission.namespace {
        Some(namespace) => ctx.emit_to(namespace, emission.name, emission.load),
        None => ctx.emit(emission.name, emission.load),
    };
    if command["wait"] == "reply" {
        seen(emitted.await_reply().with_timeout(emission.timeout).await);
        return Ok(());
    }
    emitted
        .await
        .map(|_| ())
        .map_err(|error| format!("{error:?}"))
}

/// The same on both sides: whoever connected, either may be asked.
fn with_handlers<L: AsyncStreamProtocolListener>(address: L::AddressType) -> IPCBuilder<L> {
    IPCBuilder::<L>::new()
        .address(address)
        .on("ping", callback!(ping))
        .on("raw", callback!(raw))
        .on("tandem", callback!(tandem))
        .on("many", callback!(many))
        .on("final", callback!(finally))
        .on("fail", callback!(fail))
        .on("nothing", callback!(nothing))
        .on("ask", callback!(ask))
        .on("question", callback!(question))
        .on("pong", callback!(nothing))
        .on("war", callback!(nothing))
        .on("mednat", callback!(nothing))
        .on("item", callback!(nothing))
        .on("last", callback!(nothing))
        .on("asked", callback!(nothing))
        .on("end", callback!(nothing))
        .on("error", callback!(error))
        .namespace("game")
        .on("move", callback!(game_move))
        .on("fail", callback!(fail))
        .on("moved", callback!(nothing))
        .build()
}

/// Answers with what it got, in the format it came in.
async fn ping(ctx: &Context, event: Event) -> IPCResult<Outcome> {
    handled(&event);
    ctx.emit("pong", event.payload::<Serde>()?).await?;
    done()
}

async fn game_move(ctx: &Context, event: Event) -> IPCResult<Outcome> {
    handled(&event);
    ctx.emit_to("game", "moved", event.payload::<Serde>()?)
        .await?;
    done()
}

/// The bytes backwards.
async fn raw(ctx: &Context, event: Event) -> IPCResult<Outcome> {
    handled(&event);
    let mut data = event.payload::<BytePayload>()?.into_inner();
    data.reverse();
    ctx.emit("war", BytePayload::new(data)).await?;
    done()
}

/// A value and bytes; the answer is the bytes and the value.
async fn tandem(ctx: &Context, event: Event) -> IPCResult<Outcome> {
    handled(&event);
    let (value, data) = event
        .payload::<TandemPayload<Serde, BytePayload>>()?
        .into_inner();
    ctx.emit("mednat", TandemPayload::new(data, value)).await?;
    done()
}

/// As many replies as the number it got.
async fn many(ctx: &Context, event: Event) -> IPCResult<Outcome> {
    handled(&event);
    for number in 0..event.payload::<u32>()? {
        ctx.emit("item", number).await?;
    }
    done()
}

/// One reply, and the payload again as the last word.
async fn finally(ctx: &Context, event: Event) -> IPCResult<Outcome> {
    handled(&event);
    ctx.emit("item", 0_u32).await?;
    done_with(ctx, event.payload::<Serde>()?).await
}

async fn fail(_: &Context, event: Event) -> IPCResult<Outcome> {
    handled(&event);
    Err(IPCError::from("as asked"))
}

async fn nothing(_: &Context, event: Event) -> IPCResult<Outcome> {
    handled(&event);
    done()
}

/// Asks back before it answers: a dialogue in the other direction within this one.
async fn ask(ctx: &Context, event: Event) -> IPCResult<Outcome> {
    handled(&event);
    let question = ctx.emit("question", event.payload::<Serde>()?);
    let answer = question
        .await_reply()
        .with_timeout(Duration::from_secs(10))
        .await?;
    ctx.emit("asked", answer.payload::<Serde>()?).await?;
    done()
}

async fn question(ctx: &Context, event: Event) -> IPCResult<Outcome> {
    handled(&event);
    ctx.emit("answer", event.payload::<Serde>()?).await?;
    done()
}

/// An error nobody waited for, read as the crate's own handler reads it.
async fn error(_: &Context, event: Event) -> IPCResult<Outcome> {
    handled(&event);
    event.payload::<ErrorEventData>()?;
    done()
}

fn handled(event: &Event) {
    output::line(json!({ "handled": described(event, "raw") }));
}

fn described(event: &Event, reading: &str) -> Value {
    let mut line = json!({
        "name": event.name(),
        "namespace": event.namespace(),
        "id": event.id(),
        "ref": event.reference_id(),
        "type": type_of(event),
        "data": hex(event.data_raw()),
    });
    let value = match reading {
        "serde" => event.payload::<Value>(),
        "tandem" => event
            .payload::<TandemPayload<BytePayload, Serde>>()
            .map(|pair| pair.into_inner())
            .map(|(data, value)| json!([hex(&data.into_inner()), value.data()])),
        _ => return line,
    };
    match value {
        Ok(value) => line["value"] = value,
        Err(error) => line["unreadable"] = json!(format!("{error:?}")),
    }
    line
}
