//! Payloads as a test writes them; the crate makes the bytes. Part of both versions' modules.
//!
//! `{"raw": HEX}`, `{"rmp": VALUE}`, `{"json": VALUE}`, `{"default": VALUE}` (the format the crate
//! takes by itself), `{"tandem": [PAYLOAD, PAYLOAD]}`; none at all is no bytes.

use serde_json::Value;

use super::bromine::prelude::*;
use super::Octets;
use crate::output;

pub enum Load {
    Raw(Vec<u8>),
    Default(Value),
    Serde(DynamicSerializer, Value),
    Tandem(Box<Load>, Box<Load>),
}

impl Load {
    pub fn parse(spec: &Value) -> Result<Self, String> {
        let Some(fields) = spec.as_object() else {
            return Ok(Self::Raw(Vec::new()));
        };
        match fields
            .iter()
            .next()
            .map(|(kind, value)| (kind.as_str(), value))
        {
            Some(("raw", Value::String(text))) => Ok(Self::Raw(output::from_hex(text)?)),
            Some(("default", value)) => Ok(Self::Default(value.clone())),
            Some(("rmp", value)) => Ok(Self::Serde(DynamicSerializer::Messagepack, value.clone())),
            Some(("json", value)) => Ok(Self::Serde(DynamicSerializer::Json, value.clone())),
            Some(("tandem", Value::Array(parts))) if parts.len() == 2 => Ok(Self::Tandem(
                Box::new(Self::parse(&parts[0])?),
                Box::new(Self::parse(&parts[1])?),
            )),
            _ => Err(format!("{spec} is no payload")),
        }
    }
}

impl IntoPayload for Load {
    fn into_payload(self, ctx: &Context) -> IPCResult<Octets> {
        match self {
            Self::Raw(data) => BytePayload::new(data).into_payload(ctx),
            Self::Default(value) => value.into_payload(ctx),
            Self::Serde(format, value) => SerdePayload::new(format, value).into_payload(ctx),
            Self::Tandem(one, other) => TandemPayload::new(*one, *other).into_payload(ctx),
        }
    }
}
