//! The system bus for blocking callers: systemd's daemons are called over D-Bus.

use std::future::Future;
use std::time::Duration;

use anyhow::Context;

const CALL_LIMIT: Duration = Duration::from_secs(90);

/// A connection to the system bus, and the runtime that drives it.
pub struct Bus {
    connection: zbus::Connection,
    runtime: tokio::runtime::Runtime,
}

/// Fails if the bus has not started yet, or the system has none.
pub fn system() -> anyhow::Result<Bus> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let connection = runtime
        .block_on(async { tokio::time::timeout(CALL_LIMIT, zbus::Connection::system()).await })
        .context("connecting to the system bus")?
        .context("connecting to the system bus")?;
    Ok(Bus { connection, runtime })
}

#[cfg(test)]
pub(crate) fn over(stream: std::os::unix::net::UnixStream) -> Bus {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let connection = runtime.block_on(async {
        stream.set_nonblocking(true).unwrap();
        zbus::connection::Builder::unix_stream(stream).p2p().build().await.unwrap()
    });
    Bus { connection, runtime }
}

impl Bus {
    pub fn connection(&self) -> &zbus::Connection {
        &self.connection
    }

    /// Runs a conversation to its end. The connection makes progress only inside.
    pub fn block_on<F: Future>(&self, conversation: F) -> F::Output {
        self.runtime.block_on(conversation)
    }

    /// Waits for the answer, at most 90 seconds.
    pub fn call<A, R>(
        &self,
        service: &str,
        path: &str,
        interface: &str,
        method: &str,
        arguments: &A,
    ) -> anyhow::Result<R>
    where
        A: serde::Serialize + zbus::zvariant::DynamicType,
        R: for<'d> zbus::zvariant::DynamicDeserialize<'d>,
    {
        self.block_on(async {
            let call = self.connection.call_method(Some(service), path, Some(interface), method, arguments);
            let answer = tokio::time::timeout(CALL_LIMIT, call)
                .await
                .with_context(|| format!("{interface}.{method}: no answer within {} s", CALL_LIMIT.as_secs()))?
                .with_context(|| format!("{interface}.{method}"))?;
            answer.body().deserialize::<R>().with_context(|| format!("understanding {interface}.{method}"))
        })
    }

    pub fn property<R>(&self, service: &str, path: &str, interface: &str, name: &str) -> anyhow::Result<R>
    where
        R: TryFrom<zbus::OwnedVariant>,
        R::Error: std::error::Error + Send + Sync + 'static,
    {
        let value: zbus::OwnedVariant =
            self.call(service, path, "org.freedesktop.DBus.Properties", "Get", &(interface, name))?;
        R::try_from(value).with_context(|| format!("understanding {interface}'s {name}"))
    }
}
