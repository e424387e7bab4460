//! Answers the other control-plane nodes, on a separate thread.
//!
//! The number and duration of connections and the size of messages are limited. Therefore a stranger on the network
//! costs next to nothing and cannot keep the control-plane nodes away.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::channel::{self, Channel};
use super::meeting;
use super::message::{Hello, PeerRequest, Progress, Reply};
use super::shared::{Shared, clock};

/// How long proofs may take, times the timeout factor.
const PROOF_TIME: Duration = Duration::from_secs(10);

/// How long a connection may last, times the timeout factor. It is enough for a bundle, and for a slow disk on either
/// side to save it.
const CONNECTION_TIME: Duration = Duration::from_secs(90);

/// How long open connections may continue after the rendezvous has ended.
const FAREWELL_TIME: Duration = Duration::from_secs(2);

/// Connections from one control-plane node at a time.
const PER_NODE: usize = 4;

/// Connections from all other addresses together.
const STRANGERS: usize = 8;

/// Serves until `stop` is true.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let seats = Arc::new(Seats::default());
    let mut attended = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = attended.join_next(), if !attended.is_empty() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, from)) => {
                let key = shared.is_listed(from.ip()).then(|| from.ip());
                // A connection beyond the limit is dropped without an answer.
                if let Some(seat) = Seats::take(&seats, key) {
                    let shared = Arc::clone(&shared);
                    attended.spawn(async move {
                        attend(stream, from, &shared).await;
                        drop(seat);
                    });
                }
            }
            Err(error) => {
                // Out of file descriptors, most likely: the connection stays in the queue, so trying again at once
                // would spin.
                log::warn!("taking a rendezvous connection: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
    drop(listener);
    // Open connections may finish.
    let all = async { while attended.join_next().await.is_some() {} };
    if timeout(FAREWELL_TIME, all).await.is_err() {
        log::debug!("rendezvous connections were cut off");
    }
}

async fn attend(stream: TcpStream, from: SocketAddr, shared: &Arc<Shared>) {
    let scaled = |usual| shared.settings.config.timeout(usual);
    let proved = timeout(scaled(PROOF_TIME), shared.endpoint.accept(stream)).await;
    let channel = match proved {
        Ok(Ok(channel)) => channel,
        Ok(Err(channel::Error::SecretMismatch)) => return shared.turn_away(from.ip()),
        Ok(Err(error)) => return log::debug!("rendezvous connection from {from}: {error}"),
        Err(_) => return log::debug!("rendezvous connection from {from}: no proof in time"),
    };
    match timeout(scaled(CONNECTION_TIME), converse(channel, from.ip(), shared)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => log::debug!("rendezvous with {from}: {error}"),
        Err(_) => log::debug!("rendezvous with {from}: it took too long"),
    }
}

async fn converse(mut channel: Channel, from: IpAddr, shared: &Arc<Shared>) -> Result<(), channel::Error> {
    let theirs: Hello = channel.receive().await?;
    channel.send(&shared.hello(Some(&theirs.node))).await?;
    let heard = meeting::check_hello(&theirs.node, (&shared.facts, shared.instance, clock()), &theirs);
    // A node that is a member of our cluster holds its bundle, even if its confirmation was lost.
    if let (Ok(said), true) = (&heard, owns_name(shared, &theirs.node, from))
        && let Some(cluster) = said.state.cluster()
    {
        keep(shared.note(&theirs.node, cluster, Progress::HandedOver))?;
    }
    while let Some(ask) = channel.receive_or_end::<PeerRequest>().await? {
        let reply = match &heard {
            Err(why) => Reply::Wait { reason: format!("as {} sees it: {why}", shared.settings.config.node.name) },
            Ok(_) if !owns_name(shared, &theirs.node, from) => Reply::Wait {
                reason: format!("{from} is not the address of {} in the list of control-plane nodes", theirs.node),
            },
            Ok(_) => answer(ask, &theirs.node, shared)?,
        };
        channel.send(&reply).await?;
    }
    channel.finish().await;
    Ok(())
}

/// Keys are given to a listed node at its own address only.
fn owns_name(shared: &Shared, name: &str, from: IpAddr) -> bool {
    shared.settings.config.peers().any(|node| node.name == name && IpAddr::V4(node.address) == from)
}

fn answer(ask: PeerRequest, node: &str, shared: &Shared) -> Result<Reply, channel::Error> {
    Ok(match ask {
        PeerRequest::Bundle if !shared.is_open_to(node) => {
            let this = &shared.settings.config.node.name;
            Reply::Wait { reason: format!("the hour for joining is over: run `kaas-agent await {node}` on {this}") }
        }
        PeerRequest::Bundle => match keep(shared.bundle_for(node))? {
            Some(bundle) => Reply::Bundle { bundle: Box::new(bundle) },
            None => Reply::Wait { reason: "it hands out no bundle".to_owned() },
        },
        PeerRequest::Saved { cluster } => noted(keep(shared.note(node, cluster, Progress::HandedOver))?),
    })
}

fn noted(known: bool) -> Reply {
    if known { Reply::Noted } else { Reply::Wait { reason: "it belongs to another cluster".to_owned() } }
}

/// A change that cannot be saved has not happened: the connection ends and the other side repeats its message.
fn keep<T>(result: Result<T, super::Error>) -> Result<T, channel::Error> {
    result.map_err(|error| {
        log::error!("{error:#}");
        channel::Error::Io(std::io::Error::other(error.to_string()))
    })
}

/// Counts connections by control-plane node. `None` counts all other addresses.
#[derive(Default)]
struct Seats(Mutex<BTreeMap<Option<IpAddr>, usize>>);

struct Seat(Arc<Seats>, Option<IpAddr>);

impl Seats {
    fn take(seats: &Arc<Self>, key: Option<IpAddr>) -> Option<Seat> {
        let mut taken = seats.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(key).or_default();
        let limit = if key.is_some() { PER_NODE } else { STRANGERS };
        if *count >= limit {
            return None;
        }
        *count += 1;
        Some(Seat(Arc::clone(seats), key))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.1) {
            *count = count.saturating_sub(1);
        }
    }
}
