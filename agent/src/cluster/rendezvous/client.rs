//! Requests to the other control-plane nodes.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use contract::properties::ControlNode;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::channel::{self, Channel};
use super::meeting::{self, Answer, PeerState};
use super::message::{Hello, PeerRequest, Reply};
use super::report::WaitReason;
use super::shared::{Shared, clock};

/// How long connecting to a node and exchanging proofs and introductions may take, times the timeout factor.
const HELLO_TIME: Duration = Duration::from_secs(10);

/// How long an answer may take, times the timeout factor. More than the server takes.
const REPLY_TIME: Duration = Duration::from_secs(100);

/// How long a check of a node's API port may take, times the timeout factor.
const PROBE_TIME: Duration = Duration::from_secs(2);

/// The result of a request to a peer: its answer, and whether it proved the secret.
pub(super) struct PeerExchange {
    pub answer: Answer,
    pub proved: bool,
}

/// Asks every peer at the same time. The answers are in list order.
pub(super) async fn round(shared: &Arc<Shared>) -> Vec<PeerExchange> {
    let asked: Vec<_> = shared
        .peers()
        .into_iter()
        .map(|peer| {
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                let first = peer.name == shared.first().name;
                match meet(&shared, &peer).await {
                    Ok((channel, said)) => {
                        channel.finish().await;
                        PeerExchange { answer: Answer { first, peer_state: said }, proved: true }
                    }
                    Err(why) => PeerExchange { answer: Answer { first, peer_state: Err(why) }, proved: false },
                }
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in asked {
        match task.await {
            Ok(answer) => answers.push(answer),
            // A task ends early only by a panic, which is a defect to be seen.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    answers
}

pub(super) async fn ask(
    shared: &Arc<Shared>,
    node: &ControlNode,
    ask: &PeerRequest,
) -> Result<(Channel, PeerState, Reply), WaitReason> {
    let (mut channel, said) = meet(shared, node).await?;
    let said = said?;
    let reply = ask_on(shared, &mut channel, ask).await?;
    Ok((channel, said, reply))
}

/// Sends a request on an open channel.
pub(super) async fn ask_on(shared: &Shared, channel: &mut Channel, ask: &PeerRequest) -> Result<Reply, WaitReason> {
    let exchange = async {
        channel.send(ask).await?;
        channel.receive().await
    };
    match timeout(shared.settings.config.timeout(REPLY_TIME), exchange).await {
        Ok(reply) => reply.map_err(|error| why(&error)),
        Err(_) => Err(WaitReason::NoAnswer),
    }
}

/// Connects to a peer, proves the secret and exchanges introductions.
async fn meet(shared: &Shared, peer: &ControlNode) -> Result<(Channel, Result<PeerState, WaitReason>), WaitReason> {
    let local = shared.this().address;
    let greet = async {
        let remote = SocketAddr::from((peer.address, shared.settings.port));
        let mut channel = shared.endpoint.connect(local, remote).await?;
        channel.send(&shared.hello(Some(&peer.name))).await?;
        let theirs: Hello = channel.receive().await?;
        Ok::<_, channel::Error>((channel, theirs))
    };
    match timeout(shared.settings.config.timeout(HELLO_TIME), greet).await {
        Err(_) => Err(WaitReason::NoAnswer),
        Ok(Err(error)) => match why(&error) {
            WaitReason::Refused if api_answers(shared, local, peer.address).await => Err(WaitReason::Closed),
            why => Err(why),
        },
        Ok(Ok((channel, theirs))) => {
            let said = meeting::check_hello(&peer.name, (&shared.facts, shared.instance, clock()), &theirs);
            Ok((channel, said))
        }
    }
}

/// Whether something listens on the API's port of a node whose rendezvous is not open. This proves nothing, but it only
/// ever keeps this node from forming.
async fn api_answers(shared: &Shared, local: Ipv4Addr, peer: Ipv4Addr) -> bool {
    let connect = async {
        let socket = TcpSocket::new_v4()?;
        socket.bind((local, 0).into())?;
        socket.connect((peer, shared.settings.api_port).into()).await
    };
    let connected: Result<io::Result<TcpStream>, _> =
        timeout(shared.settings.config.timeout(PROBE_TIME), connect).await;
    matches!(connected, Ok(Ok(_)))
}

fn why(error: &channel::Error) -> WaitReason {
    match error {
        channel::Error::SecretMismatch => WaitReason::SecretMismatch,
        channel::Error::Io(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused => WaitReason::Refused,
            io::ErrorKind::TimedOut => WaitReason::NoAnswer,
            io::ErrorKind::HostUnreachable => WaitReason::Unreachable("no route to the host, or it is off".to_owned()),
            io::ErrorKind::NetworkUnreachable => WaitReason::Unreachable("no route to its network".to_owned()),
            io::ErrorKind::AddrNotAvailable => {
                WaitReason::Unreachable("this node's own address is not set yet".to_owned())
            }
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                WaitReason::Strange("it ended the connection".to_owned())
            }
            _ => WaitReason::Strange(error.to_string()),
        },
        other => WaitReason::Strange(other.to_string()),
    }
}
