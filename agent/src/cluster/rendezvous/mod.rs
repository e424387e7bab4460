//! The rendezvous of the control-plane nodes before a cluster exists.
//!
//! Each control-plane node runs a [`Rendezvous`] until the cluster has been formed. It has a server on
//! [`contract::ports::RENDEZVOUS`] of the node's address, and blocking calls for the boot flow. It knows nothing of
//! etcd, kubeadm or systemd. It gives out keys, and records which nodes hold them and which nodes have joined.
//!
//! # Roles
//!
//! ```text
//! every node   asks all the others, again and again: who are you, how far are you?
//! first node   all said "unformed" in one round → decides: a cluster identity, CAs,
//!              a bundle for each node; saves that, then answers "forming"
//! other nodes  the first says "forming" → fetch their bundle, save it, confirm it
//! first node   a majority holds its bundle → etcd may start
//! each node    holds its bundle → needs no permission: signs its own certificates with the
//!              CAs, starts its control plane, and has then joined
//! other nodes  their join is recorded in the cluster's store → closed for good
//! first node   the joins of all others are recorded there → closed for good
//! ```
//!
//! No node reports its join to another node, or concludes it from an open port. The caller of the rendezvous reads the
//! cluster's store, which a majority of the nodes keep. Therefore no node waits for a lost one, except the first, which
//! works meanwhile.
//!
//! - Only the first of the list decides and gives out bundles. Two nodes
//!   with equal rights would need an agreement that only a cluster gives.
//! - The others fetch, the first never pushes. So a node that was cut off gets its
//!   bundle when it returns. After a crash on either side, a repeated request
//!   has the same answer. The request must come from the asking node's listed address.
//! - Once the first node works, it gives out bundles for an hour, and for another hour
//!   after each `kaas-agent await NODE` ([`JoinWindow`]).
//! - Everything is saved before it is sent or relied upon ([`RendezvousRecord`], [`SaveRecord`]).
//!   After a power cut at any moment, the same calls continue where they were.
//! - A blank first node never forms while a node belongs to a cluster or
//!   does not answer. Only a round counts in which every listed node proved the
//!   secret and said "unformed". A node to which a bundle may be on its way says
//!   "receiving" instead. If the rendezvous has closed and an API server
//!   answers, the report says that.
//! - There are no tokens that could expire while a node is away. A node that holds its bundle
//!   holds the CAs, and makes new certificates itself. If the certificates of a bundle
//!   end within [`crate::cluster::pki::RENEW_BEFORE`] when it is fetched, they are made again.
//! - If the first node is lost for good, no other node decides or gives out bundles. Before etcd had a quorum
//!   there is nothing to lose: reset the other nodes and deploy again. Nodes that hold their bundles and have a
//!   quorum without it become members, form the cluster, and replace it like any member.
//! - A first node that comes back blank learns that from the others and stops
//!   ([`WaitReason::InCluster`]). A node that comes back blank after it joined learns it from
//!   the first ([`WaitReason::Lost`]), or finds the rendezvous closed ([`WaitReason::Closed`]). A node that
//!   comes back blank before it joined gets its bundle again. If its etcd
//!   has run already, etcd itself refuses to start it as new ("has already been bootstrapped").
//!
//! # A node that is replaced
//!
//! This is the only way into an existing cluster. On a command of the administrator, a member opens the port again for
//! one listed node and a one-time code. The code replaces the deployment secret ([`RendezvousRecord::Admitting`]). The
//! blank node asks all nodes, as always. The member that proves the code and says "admitting" gives it a bundle. If the
//! confirmation that it saved the bundle is lost, the code stays valid until it expires.
//!
//! The secret is proved as `channel` describes. Neither side sends anything else before both have proved it.
//!
//! # Use in the boot flow
//!
//! ```no_run
//! # use agent::cluster::rendezvous::{Rendezvous, Settings, RendezvousRecord, Error};
//! # fn flow(settings: Settings, record: RendezvousRecord, first: bool) -> Result<(), Error> {
//! # let mut joined = || Ok(std::collections::BTreeSet::new());
//! let rendezvous = Rendezvous::open(settings, record, Box::new(|record| { /* save it */ Ok(()) }))?;
//! let mut watch = |report: &agent::cluster::rendezvous::Report| {
//!     println!("{report}");
//!     std::ops::ControlFlow::Continue(())
//! };
//! let bundle = rendezvous.meet(&mut watch)?;
//! // bundle.ensure(…), start etcd and the control plane, record the join; then:
//! if first {
//!     rendezvous.wait_for_joins(&mut joined, &mut watch)?;
//! } else {
//!     rendezvous.close()?;
//! }
//! # Ok(())
//! # }
//! ```

mod channel;
mod client;
mod error;
mod meeting;
mod message;
mod record;
mod report;
mod server;
mod settings;
mod shared;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use contract::finding::Findings;
use contract::properties::ControlNode;
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

use crate::cluster::pki::MemberBundle;

pub use channel::Proof;
pub use error::Error;
pub use message::{Difference, Membership, Progress};
pub use record::RendezvousRecord;
pub use report::{AwaitedNode, Report, WaitReason};
pub use settings::{JoinWindow, SaveRecord, Settings};

use channel::Endpoint;
use meeting::{Answer, PeerState, Verdict};
use message::{PeerRequest, Reply};
use shared::Shared;

/// The factor by which the first node's pause is longer once it only waits for missing nodes: nodes that come back call
/// by themselves.
const CALM: u32 = 5;

/// Receives the report after each round, and may end the waiting.
pub type Watch<'a> = &'a mut dyn FnMut(&Report) -> ControlFlow<()>;

/// Returns the other nodes that need nothing from the first one. Their joins are recorded in the cluster's store, or they
/// are no longer members of it.
pub type JoinQuery<'a> = &'a mut dyn FnMut() -> anyhow::Result<BTreeSet<String>>;

/// A node's side of the rendezvous. Dropping it closes the port. The record stays.
pub struct Rendezvous {
    shared: Arc<Shared>,
    runtime: Runtime,
    stop: tokio::sync::watch::Sender<bool>,
    server: Option<thread::JoinHandle<()>>,
}

impl Rendezvous {
    /// Opens the port and starts answering. `record` is the last one that `keep` saved, or the default on a blank node.
    /// After an error nothing has been saved. [`Error::Closed`] if the record says so.
    pub fn open(settings: Settings, record: RendezvousRecord, keep: SaveRecord) -> Result<Self, Error> {
        Self::open_within(settings, record, keep, Box::new(|_| Ok(true)))
    }

    /// As [`Rendezvous::open`], and gives bundles only to the nodes for which `window` is open.
    pub fn open_within(
        settings: Settings,
        record: RendezvousRecord,
        keep: SaveRecord,
        window: JoinWindow,
    ) -> Result<Self, Error> {
        if let RendezvousRecord::Closed { cluster } = record {
            return Err(Error::Closed(cluster));
        }
        let address = settings.config.control_node().map_err(|_| Error::NotListed)?.address;
        let setup = |error: &dyn std::fmt::Display| Error::Setup(error.to_string());
        let endpoint = Endpoint::new(&settings.proof).map_err(|error| setup(&error))?;
        let listen = |source| Error::Listen { address: format!("{address}:{}", settings.port), source };
        let listener = TcpListener::bind((address, settings.port)).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;

        let shared = Arc::new(Shared::new(settings, endpoint, record, keep, window));
        let runtime = || Builder::new_current_thread().enable_io().enable_time().build();
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let (serving, served) = (runtime().map_err(|error| setup(&error))?, Arc::clone(&shared));
        let server = thread::Builder::new()
            .name("rendezvous".to_owned())
            .spawn(move || {
                serving.block_on(async {
                    match tokio::net::TcpListener::from_std(listener) {
                        Ok(listener) => server::serve(listener, served, stopped).await,
                        Err(error) => log::error!("serving the rendezvous: {error}"),
                    }
                });
            })
            .map_err(|error| setup(&error))?;
        Ok(Self { shared, runtime: runtime().map_err(|error| setup(&error))?, stop, server: Some(server) })
    }

    /// Meets the others and returns this node's bundle. The first node returns once a majority holds theirs, so that
    /// etcd can have a quorum. Other nodes return once it has been saved. Returns at once if that was reached earlier.
    /// After an error another call continues from the saved record.
    pub fn meet(&self, watch: Watch<'_>) -> Result<MemberBundle, Error> {
        loop {
            if let Some(bundle) = self.shared.settled()? {
                return Ok(bundle);
            }
            let round = self.round()?;
            match round.verdict {
                Verdict::Form => self.shared.form()?,
                Verdict::Proceed => {}
                Verdict::Fetch(cluster) => {
                    let first = self.shared.first().clone();
                    self.fetch_or_wait(first, cluster, false, watch, &round.proved)?;
                }
                Verdict::Admitted(place, cluster) => {
                    let member = self.shared.peers().swap_remove(place);
                    self.fetch_or_wait(member, cluster, true, watch, &round.proved)?;
                }
                Verdict::Wait(against) => {
                    let against: Vec<_> = self.shared.peers().into_iter().zip(against).collect();
                    self.say(watch, &against, &round.proved)?;
                    self.shared.pause(self.shared.settings.pace);
                }
            }
        }
    }

    /// On a member that admits a node: waits until that node has saved its bundle, or until `watch` ends the waiting.
    /// The port is open until `self` is dropped.
    pub fn admit(&self, watch: Watch<'_>) -> Result<(), Error> {
        while !self.shared.handed_over() {
            self.say(watch, &[], &[])?;
            self.shared.pause(self.shared.settings.pace);
        }
        Ok(())
    }

    /// On the first node: gives out bundles until all others have `joined`, then closes the rendezvous for good. If the
    /// lookup of joins fails, it is repeated. After [`Error::Stopped`] the progress so far is on record.
    pub fn wait_for_joins(&self, joined: JoinQuery<'_>, watch: Watch<'_>) -> Result<(), Error> {
        let cluster = self.shared.own().state.cluster().ok_or(Error::NotFormed)?;
        loop {
            match joined() {
                Ok(names) => {
                    for name in names {
                        self.shared.note(&name, cluster, Progress::Joined)?;
                    }
                }
                Err(error) => log::debug!("looking who has joined: {error:#}"),
            }
            let progress = self.shared.progress();
            if progress.values().all(|progress| *progress == Progress::Joined) {
                return self.close();
            }
            let round = self.round()?;
            let mut against = Vec::new();
            for (peer, answer) in self.shared.peers().into_iter().zip(round.answers) {
                let joined = progress.get(&peer.name) == Some(&Progress::Joined);
                let why = match answer.peer_state {
                    _ if joined => None,
                    Ok(PeerState { state: Membership::Unformed | Membership::Receiving, .. }) => {
                        Some(WaitReason::Busy("it has not fetched its keys yet".to_owned()))
                    }
                    Ok(_) => Some(WaitReason::Busy("it has its keys, and its join is not recorded yet".to_owned())),
                    Err(why) => Some(why.of_a_member()),
                };
                against.push((peer, why));
            }
            self.say(watch, &against, &round.proved)?;
            self.shared.pause(self.shared.settings.pace * CALM);
        }
    }

    /// Closes the rendezvous on this node for good: it has joined, and no other node needs it. After an error it stays
    /// open.
    pub fn close(&self) -> Result<(), Error> {
        self.shared.close()?;
        self.stop.send_replace(true);
        Ok(())
    }

    /// Fetches this node's bundle from another one and saves it, or reports why not.
    fn fetch_or_wait(
        &self,
        from: ControlNode,
        cluster: Uuid,
        admitted: bool,
        watch: Watch<'_>,
        proved: &[std::net::Ipv4Addr],
    ) -> Result<(), Error> {
        self.shared.set_receiving(true);
        let fetched = self.runtime.block_on(self.fetch_and_keep(&from, cluster, admitted));
        self.shared.set_receiving(false);
        if let Err(why) = fetched? {
            self.say(watch, &[(from, Some(why))], proved)?;
            self.shared.pause(self.shared.settings.pace);
        }
        Ok(())
    }

    /// Fetches and saves the bundle. After an inner error, another round may succeed.
    async fn fetch_and_keep(
        &self,
        from: &ControlNode,
        cluster: Uuid,
        admitted: bool,
    ) -> Result<Result<(), WaitReason>, Error> {
        let (mut channel, bundle) = match client::ask(&self.shared, from, &PeerRequest::Bundle).await {
            Ok((channel, _, Reply::Bundle { bundle })) if bundle.cluster == cluster => (channel, bundle),
            Ok((_, _, Reply::Bundle { .. })) => return Ok(Err(WaitReason::OtherCluster)),
            Ok((_, _, Reply::Wait { reason })) => return Ok(Err(WaitReason::Busy(reason))),
            Ok(_) => return Ok(Err(WaitReason::Strange("its answer does not fit the question".to_owned()))),
            Err(why) => return Ok(Err(why)),
        };
        self.shared.take_bundle(*bundle, admitted)?;
        // If this message is lost, the next introduction has the same information.
        if let Err(why) = client::ask_on(&self.shared, &mut channel, &PeerRequest::Saved { cluster }).await {
            log::info!("the other node may not know yet that the bundle is saved: {why}");
        }
        channel.finish().await;
        Ok(Ok(()))
    }

    /// Asks all peers once, records their progress, and decides.
    fn round(&self) -> Result<Round, Error> {
        let asked = self.runtime.block_on(client::round(&self.shared));
        let peers = self.shared.peers();
        let proved = peers.iter().zip(&asked).filter(|(_, asked)| asked.proved).map(|(peer, _)| peer.address).collect();
        let answers: Vec<Answer> = asked.into_iter().map(|asked| asked.answer).collect();
        for (peer, answer) in peers.iter().zip(&answers) {
            if let Ok(PeerState { state, .. }) = &answer.peer_state
                && let Some(cluster) = state.cluster()
            {
                self.shared.note(&peer.name, cluster, Progress::HandedOver)?;
            }
        }
        Ok(Round { verdict: meeting::judge(&self.shared.own(), &answers), answers, proved })
    }

    fn say(
        &self,
        watch: Watch<'_>,
        against: &[(ControlNode, Option<WaitReason>)],
        proved: &[std::net::Ipv4Addr],
    ) -> Result<(), Error> {
        let mut report = Report::default();
        for (peer, why) in against {
            let Some(why) = why else { continue };
            if let Some(finding) = why.finding(&peer.name, peer.address) {
                report.findings.push(finding);
            }
            report.waiting.push(AwaitedNode { node: peer.name.clone(), address: peer.address, why: why.clone() });
        }
        let mut knocked = Findings::default();
        for finding in self.shared.strangers(proved).iter() {
            if !report.findings.iter().any(|said| said.code == finding.code && said.subject == finding.subject) {
                knocked.push(finding.clone());
            }
        }
        report.findings.extend(knocked);
        match watch(&report) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Stopped),
        }
    }
}

struct Round {
    verdict: Verdict,
    answers: Vec<Answer>,
    /// Addresses of peers that proved the deployment secret in this round.
    proved: Vec<std::net::Ipv4Addr>,
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(server) = self.server.take()
            && server.join().is_err()
        {
            log::error!("the rendezvous' server thread had panicked");
        }
    }
}
