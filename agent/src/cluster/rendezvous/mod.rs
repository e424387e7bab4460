//! The control nodes' meeting before there is a cluster.
//!
//! Each control node runs a [`Rendezvous`] until the cluster has been formed:
//! a server on [`contract::ports::RENDEZVOUS`] of its own address, and calls that the boot flow makes,
//! which block until something has been reached. It knows nothing of etcd,
//! kubeadm or systemd; it hands out keys, and remembers who holds them and
//! of whom it was told that it has joined.
//!
//! # Who does what
//!
//! ```text
//! every node   asks all the others, again and again: who are you, how far are you?
//! first node   all said "unformed" in one round → decides: a cluster identity, authorities,
//!              a bundle for each node; saves that, then answers "forming"
//! other nodes  the first says "forming" → fetch their bundle, save it, say so
//! first node   a majority holds its bundle → etcd may start
//! each node    holds its bundle → needs nobody's leave: signs its own certificates with the
//!              authorities, starts its control plane, and has then joined
//! other nodes  their join is recorded in the cluster's store → closed for good
//! first node   the joins of all others are recorded there → closed for good
//! ```
//!
//! Nobody tells another node that it has joined, and nobody concludes it from what answers on a port: whoever runs the
//! rendezvous looks into the cluster's store, which a majority of the nodes keep. So no node waits for one that is lost,
//! but the first, which works meanwhile.
//!
//! - The first of the list is the only one that decides and hands out. Two nodes
//!   with equal rights would need an agreement that only a cluster gives.
//! - The others fetch, the first never pushes: a node that was cut off gets its
//!   bundle when it returns, and a repeated question after a crash on either side
//!   has the same answer. The question must come from the asking node's listed address.
//! - Once the first node works, it hands out bundles for an hour, and for another hour
//!   after each `kaas-agent await NODE` ([`Window`]).
//! - Everything is saved before it is said or relied upon ([`Record`], [`Keep`]).
//!   Power cut at any moment, then the same calls again, goes on where it was.
//! - A blank first node never forms beside a node that belongs to a cluster, nor
//!   while one does not answer: only a round in which every listed node proved the
//!   secret and said "unformed" counts. A node to which a bundle may be on its way says
//!   "receiving" instead. Where the rendezvous has closed and an API server
//!   answers, that is named.
//! - There are no tokens that could expire while a node is away. A node that holds its bundle
//!   holds the authorities, and makes the certificates anew by itself. In a bundle that
//!   is fetched so late that its certificates end within [`crate::cluster::pki::RENEW_BEFORE`], they are made anew.
//! - If the first node is lost for good, nobody decides or hands out in its place. Before etcd had a quorum
//!   there is nothing to lose: reset the other nodes and deploy again. Nodes that hold their bundles and have a
//!   quorum without it become members, form the cluster, and replace it as they would any member.
//! - A first node that comes back blank is told so by the others and stops
//!   there ([`Why::InCluster`]); a node that comes back blank after it joined is told by
//!   the first ([`Why::Lost`]), or finds the rendezvous closed ([`Why::Closed`]). One that
//!   comes back blank before it joined is handed its bundle again; should its etcd
//!   have run already, etcd itself refuses to start it as new ("has already been bootstrapped").
//!
//! # A node that is replaced
//!
//! The one way into a cluster that stands: a member, told so by its
//! administrator, opens the port again for one listed node and a one-time code, which
//! takes the place of the deployment secret ([`Record::Admitting`]). The blank node
//! asks everybody, as ever; the one that proves the code and says "admitting"
//! hands it a bundle. If the word that it saved that is lost, the code stays
//! good until it expires.
//!
//! The secret is proved as `channel` describes. Neither side says anything else
//! before both have proved it.
//!
//! # How the boot flow uses it
//!
//! ```no_run
//! # use agent::cluster::rendezvous::{Rendezvous, Settings, Record, Error};
//! # fn flow(settings: Settings, record: Record, first: bool) -> Result<(), Error> {
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

/// How many times longer the first node waits once it only looks who is still
/// missing: those who come back call by themselves.
const CALM: u32 = 5;

/// Is given the state of things after each round, and may end the waiting.
pub type Watch<'a> = &'a mut dyn FnMut(&Report) -> ControlFlow<()>;

/// Says which of the other nodes need nothing of the first one any more: their joins are recorded in the cluster's
/// store, or they are no members of it any more.
pub type JoinQuery<'a> = &'a mut dyn FnMut() -> anyhow::Result<BTreeSet<String>>;

/// A node's side of the meeting. Dropping it closes the port; the record stays.
pub struct Rendezvous {
    shared: Arc<Shared>,
    runtime: Runtime,
    stop: tokio::sync::watch::Sender<bool>,
    server: Option<thread::JoinHandle<()>>,
}

impl Rendezvous {
    /// Opens the port and starts answering. `record` is what was last given to
    /// `keep`, or the default on a blank node.
    ///
    /// # Errors
    /// [`Error::NotListed`], [`Error::Setup`], [`Error::Listen`], and
    /// [`Error::Closed`] when the record says so. Nothing has been saved then.
    pub fn open(settings: Settings, record: RendezvousRecord, keep: SaveRecord) -> Result<Self, Error> {
        Self::open_within(settings, record, keep, Box::new(|_| Ok(true)))
    }

    /// The same, which hands bundles to the nodes for which `window` is open.
    ///
    /// # Errors
    /// As [`Rendezvous::open`].
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

    /// Meets the others. Returns this node's bundle: on the first node once a
    /// majority holds theirs, so that etcd can have a quorum; elsewhere once it has been saved.
    /// Returns at once when that was reached earlier.
    ///
    /// # Errors
    /// [`Error::Stopped`] when `watch` says so; [`Error::Keep`] and [`Error::Pki`]. Calling
    /// again goes on from what was saved.
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

    /// On a member that admits a node: waits until that node has saved its bundle, or
    /// until `watch` says so. The port is open until this is dropped.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn admit(&self, watch: Watch<'_>) -> Result<(), Error> {
        while !self.shared.handed_over() {
            self.say(watch, &[], &[])?;
            self.shared.pause(self.shared.settings.pace);
        }
        Ok(())
    }

    /// On the first node: hands out what it is asked for until all others have `joined`, then closes the
    /// rendezvous for good. That they cannot be looked up now is no answer: it is asked again.
    ///
    /// # Errors
    /// [`Error::Stopped`]: what has been reached is on record. [`Error::NotFormed`], [`Error::Keep`].
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

    /// Closes the rendezvous on this node for good: it has joined, and nobody needs anything of it any more.
    ///
    /// # Errors
    /// [`Error::NotFormed`], [`Error::Keep`]: it is then as it was.
    pub fn close(&self) -> Result<(), Error> {
        self.shared.close()?;
        self.stop.send_replace(true);
        Ok(())
    }

    /// Fetches this node's bundle from another one and saves it, or says why not.
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

    /// The inner error is worth another round.
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
        // If this word is lost, the next introduction says the same.
        if let Err(why) = client::ask_on(&self.shared, &mut channel, &PeerRequest::Saved { cluster }).await {
            log::info!("the other node may not know yet that the bundle is saved: {why}");
        }
        channel.finish().await;
        Ok(Ok(()))
    }

    /// Asks everybody once, notes what that tells, and judges.
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
