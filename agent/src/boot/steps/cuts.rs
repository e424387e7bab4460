//! The power is cut after each thing that the forming of a node saves, and the node
//! starts again: it always becomes the one node of the one cluster that it decided on. What
//! is saved, in which order, is the product's; programs and services are stand-ins. (Each
//! write of the data disk's preparation is cut in [`crate::host::disk`], three nodes that meet in
//! [`crate::cluster::rendezvous`].)

use std::net::{Ipv4Addr, TcpListener};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use contract::image::ImageFacts;
use contract::secret::Secret;
use uuid::Uuid;

use crate::boot::plan::{self, Disk, Goal, Observed, Step};
use crate::cluster::certificates::renewal;
use crate::cluster::kubernetes::PKI;
use crate::cluster::kubernetes::kubeadm::Kubeadm;
use crate::cluster::kubernetes::kubeadm::tests::Fake;
use crate::cluster::pki;
use crate::cluster::records::{Progress, Records};
use crate::cluster::rendezvous::{Proof, Record, Rendezvous, Settings};
use crate::host::files::{self, power};
use crate::intake::config::Config;
use crate::intake::config::fixture::{image, one_node};

/// No other test listens on it, nor is it where a connection to one begins: a port that was free there stays free.
const OWN: Ipv4Addr = Ipv4Addr::new(127, 0, 2, 1);

/// A node below a directory; what the disks and the OVF environment give it.
struct Node {
    root: PathBuf,
    image: ImageFacts,
    secret: Secret,
}

impl Node {
    /// One boot, from the decision to the last step.
    fn boot(&self) -> anyhow::Result<Goal> {
        let records = Records::new(&self.root);
        let mut config = one_node();
        config.cluster.control_nodes[0].address = OWN;
        let config = records.config()?.unwrap_or(Config::ControlPlane(config));
        let observed = Observed {
            image: self.image.clone(),
            disk: Disk::Ours("/dev/sdb".into()),
            progress: records.progress()?,
            rendezvous_closed: matches!(records.rendezvous()?, Record::Closed { .. }),
            upgrading: None,
        };
        let plan = plan::decide(&config, &observed).map_err(|finding| anyhow::anyhow!("{}", finding.seen))?;
        let control_plane = config.control_plane()?;
        let node = control_plane.control_node().unwrap().clone();
        let (now, pki) = (SystemTime::now(), files::below(&self.root, PKI));
        let mut rendezvous = None;
        let save = |change: fn(&mut Progress)| -> anyhow::Result<bool> {
            let mut progress = records.progress()?;
            change(&mut progress);
            records.save_progress(progress)
        };
        for step in &plan.steps {
            match step {
                Step::SaveConfiguration => _ = records.save_config(&config, &self.secret)?,
                Step::Meet => {
                    let keeper = Records::new(&self.root);
                    let keep = Box::new(move |record: &Record| keeper.save_rendezvous(record));
                    let port = TcpListener::bind((OWN, 0))?.local_addr()?.port();
                    let settings =
                        Settings { port, ..Settings::new(control_plane.clone(), Proof::of(&self.secret), "image") };
                    let open = Rendezvous::open(settings, records.rendezvous()?, keep)?;
                    let bundle = open.meet(&mut |_| ControlFlow::Continue(()))?;
                    bundle.ensure(&node, &pki, now)?;
                    rendezvous = Some(open);
                }
                Step::EtcdCertificates => _ = pki::ensure_member(&node, &pki, now)?,
                Step::Etcd => _ = save(|progress| progress.etcd = true)?,
                Step::Credentials => {
                    let complete = records.progress()?.credentials;
                    renewal::kubernetes(&self.root, control_plane, &Fake::new(&self.root), complete, now)?;
                    save(|progress| progress.credentials = true)?;
                }
                Step::Manifests => _ = Kubeadm::new(&self.root, &Fake::new(&self.root)).manifests()?,
                Step::Complete => {
                    if let Some(open) = rendezvous.take() {
                        open.wait_for_joins(&mut |_| ControlFlow::Continue(()))?;
                    }
                }
                Step::Finish => {
                    records.erase_secret()?;
                    save(|progress| progress.formed = true)?;
                }
                _ => {}
            }
        }
        Ok(plan.goal)
    }

    fn cluster(&self) -> Option<Uuid> {
        Records::new(&self.root).rendezvous().unwrap().state().cluster()
    }
}

/// What a node holds that must never change once it is there.
fn authorities(root: &Path) -> Option<String> {
    std::fs::read_to_string(files::below(root, PKI).join("ca.crt")).ok()
}

#[test]
fn a_node_that_is_cut_off_after_anything_it_saves_forms_its_one_cluster() {
    let mut things = 0;
    loop {
        let root = tempfile::tempdir().unwrap();
        let secret = Secret::new("n7Q-vX2p-Lr9w-Tz4k-Hb8m-Cs5d".to_owned());
        let node = Node { root: root.path().to_owned(), image: image(), secret };
        let (first, cut) = power::with(things, || node.boot());
        let (cluster, authority) = (node.cluster(), authorities(root.path()));
        if !cut {
            first.unwrap();
        }
        // Cut again at the same distance, then left in peace.
        let _ = power::with(things, || node.boot());
        node.boot().unwrap_or_else(|error| panic!("after {things} things: {error:#}"));
        let records = Records::new(root.path());
        assert!(matches!(records.rendezvous().unwrap(), Record::Closed { .. }), "after {things} things");
        assert!(records.progress().unwrap().formed && records.secret().unwrap().is_none(), "after {things} things");
        for (before, after) in [
            (cluster.map(|one| one.to_string()), node.cluster().map(|one| one.to_string())),
            (authority, authorities(root.path())),
        ] {
            assert!(before.is_none() || before == after, "after {things} things: {before:?} became {after:?}");
        }
        // It is at rest: nothing is left to be done.
        assert_eq!(node.boot().unwrap(), Goal::Resume);
        if !cut {
            break;
        }
        things += 1;
    }
    assert!(things > 60, "only {things} things were saved");
}
