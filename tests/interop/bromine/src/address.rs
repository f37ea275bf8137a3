//! Addresses as the tests write them, and what a listener says of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use tokio::net::{TcpListener, UnixListener};

pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix://") {
            return Ok(Self::Unix(path.into()));
        }
        text.strip_prefix("tcp://")
            .and_then(|rest| rest.parse().ok())
            .map(Self::Tcp)
            .ok_or_else(|| format!("{text} is neither tcp://IP:PORT nor unix://PATH"))
    }
}

/// A listener that knows where it listens: the crate keeps its own to itself.
pub trait Listening {
    fn listens_at(&self) -> std::io::Result<String>;
}

impl Listening for TcpListener {
    fn listens_at(&self) -> std::io::Result<String> {
        Ok(format!("tcp://{}", self.local_addr()?))
    }
}

impl Listening for UnixListener {
    fn listens_at(&self) -> std::io::Result<String> {
        let address = self.local_addr()?;
        let path = address.as_pathname().map(|path| path.display().to_string());
        Ok(format!("unix://{}", path.unwrap_or_default()))
    }
}
