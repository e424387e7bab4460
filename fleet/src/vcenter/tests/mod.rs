//! The hypervisor against a test vCenter with the refusals of a real one.

mod absent;
mod adopt;
mod away;
mod bed;
mod cluster;
mod complete;
mod copies;
mod cut;
mod disturbed;
mod each_deploy;
mod each_swap;
mod faults;
mod mirrored;
mod notes;
mod one_vm;
mod others;
mod points;
mod privileges;
mod probe;
mod question;
mod queued;
mod restart;
mod scale;
mod storage_policies;
mod store;
mod templates;
mod unanswered;
mod unread;
mod upgrade;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tempfile::TempDir;
use uuid::Uuid;

use self::bed::{Bed, DEPLOYMENT, NETWORK, journal_of};
use super::VcenterHypervisor;
use crate::hypervisor::{
    CloneRequest, CloneSettings, DiskRef, Error, ErrorKind, Fence, Hypervisor, ImageTemplate, Networks, Placement,
    Result, Size, Stamp, Vm, VmSize,
};
use crate::upgrade::Target;
use crate::upgrade::tests::package;

/// Permits everything.
struct Free;

#[async_trait]
impl Fence for Free {
    async fn still(&self) -> Result<()> {
        Ok(())
    }
}

/// Permits this many requests. After that, another command has taken over.
struct Few(AtomicUsize);

#[async_trait]
impl Fence for Few {
    async fn still(&self) -> Result<()> {
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.map(drop).map_err(|_| Error::new(ErrorKind::Fenced, anyhow::anyhow!("another command has taken over")))
    }
}

/// An OVA and its digest. The file is deleted with the value.
struct Ova {
    _directory: TempDir,
    path: PathBuf,
    digest: String,
}

fn ova() -> Ova {
    ova_with(Vec::new())
}

/// An OVA whose VMs have these variables from their creation.
fn ova_with(extra: Vec<(String, String)>) -> Ova {
    let directory = tempfile::tempdir().unwrap();
    let version = "0.2.0+bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb (etcd 3.6)";
    let path = package::write_with(directory.path(), version, None, extra);
    let digest = Target::read(&path).unwrap().digest;
    Ova { _directory: directory, path, digest }
}

const SIZE: Size = Size { processors: 2, memory: 2048, data_disk: Some(64 << 20) };

fn stamp(node: &str, swap: Option<u128>) -> Stamp {
    Stamp { deployment: DEPLOYMENT, node: node.to_owned(), swap: swap.map(Uuid::from_u128) }
}

fn properties(node: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("node-name".to_owned(), node.to_owned()),
        ("deployment-secret".to_owned(), "a <secret> & more".to_owned()),
    ])
}

async fn started() -> (Bed, VcenterHypervisor) {
    let bed = Bed::start(&[]);
    let hypervisor = bed.hypervisor().await;
    (bed, hypervisor)
}

async fn with_ova() -> (Bed, VcenterHypervisor, Ova) {
    let (bed, hypervisor) = started().await;
    (bed, hypervisor, ova())
}

/// The same with another client of the vCenter.
async fn with_client() -> (Bed, VcenterHypervisor, Ova, vsphere::Client) {
    let (bed, hypervisor, ova) = with_ova().await;
    let client = bed.client().await;
    (bed, hypervisor, ova, client)
}

/// A vCenter with the template of an OVA.
async fn with_image() -> (Bed, VcenterHypervisor, ImageTemplate) {
    let (bed, hypervisor, ova) = with_ova().await;
    let image = hypervisor.lay(&ova).await;
    (bed, hypervisor, image)
}

/// A vCenter with the VM of a node, off.
async fn with_vm() -> (Bed, VcenterHypervisor, Vm) {
    let (bed, hypervisor, image) = with_image().await;
    let vm = hypervisor.added("cp1", &image).await;
    (bed, hypervisor, vm)
}

/// Checks the kind and the words of an error.
fn says(error: &Error, kind: ErrorKind, words: &str) {
    assert!(error.kind == kind && error.to_string().contains(words), "{:?}: {error}", error.kind);
}

impl VcenterHypervisor {
    async fn lay(&self, ova: &Ova) -> ImageTemplate {
        self.import(ova, &Free).await.unwrap()
    }

    async fn lay_at(&self, ova: &Ova, placement: &Placement) -> ImageTemplate {
        self.import_template(&ova.path, &ova.digest, None, placement, &Free).await.unwrap()
    }

    async fn import(&self, ova: &Ova, permit: &dyn Fence) -> Result<ImageTemplate> {
        self.import_template(&ova.path, &ova.digest, None, &Placement::default(), permit).await
    }

    /// How many requests the import of an OVA takes.
    async fn requests_to_import(&self, ova: &Ova) -> usize {
        let permit = Few(AtomicUsize::new(1000));
        self.import(ova, &permit).await.unwrap();
        1000 - permit.0.into_inner()
    }

    async fn try_add(&self, node: &str, image: &ImageTemplate) -> Result<Uuid> {
        self.try_add_with(node, image, &[NETWORK], &properties(node), &Placement::default()).await
    }

    async fn try_add_with(
        &self,
        node: &str,
        image: &ImageTemplate,
        networks: &[&str],
        properties: &BTreeMap<String, String>,
        placement: &Placement,
    ) -> Result<Uuid> {
        let stamp = Stamp { deployment: self.deployment, ..stamp(node, None) };
        self.try_add_as(node, stamp, image, networks, properties, placement).await
    }

    async fn try_add_as(
        &self,
        name: &str,
        stamp: Stamp,
        image: &ImageTemplate,
        networks: &[&str],
        properties: &BTreeMap<String, String>,
        placement: &Placement,
    ) -> Result<Uuid> {
        let networks: Vec<String> = networks.iter().map(|network| (*network).to_owned()).collect();
        let uuid = Uuid::new_v4();
        let request = CloneRequest {
            name,
            uuid,
            image,
            settings: CloneSettings::Given { networks: Networks::Named(&networks), size: &SIZE, properties },
            stamp,
            placement,
        };
        let made = self.clone_vm(&request, &Free).await?;
        assert_eq!(made, uuid, "the one that its maker has noted");
        Ok(made)
    }

    /// A new VM of a node.
    async fn added(&self, node: &str, image: &ImageTemplate) -> Vm {
        let uuid = self.try_add(node, image).await.unwrap();
        self.of_uuid(uuid).await
    }

    /// A new VM of this name with a stamp.
    async fn added_as(&self, name: &str, stamp: Stamp, image: &ImageTemplate) -> Vm {
        let (properties, placement) = (properties(&stamp.node), Placement::default());
        let made = self.try_add_as(name, stamp, image, &[NETWORK], &properties, &placement).await;
        self.of_uuid(made.unwrap()).await
    }

    /// A new VM of a node, as it is before it is powered on here.
    async fn started(&self, node: &str, image: &ImageTemplate) -> Vm {
        let vm = self.added(node, image).await;
        self.power_on(&vm, &Free).await.unwrap();
        vm
    }

    /// A new VM of a node at a place.
    async fn added_at(&self, node: &str, image: &ImageTemplate, placement: &Placement) -> Vm {
        let uuid = self.try_add_with(node, image, &[NETWORK], &properties(node), placement).await.unwrap();
        self.of_uuid(uuid).await
    }

    /// A VM that replaces another one.
    async fn replaced(&self, like: &Vm, name: &str, image: &ImageTemplate) -> Result<Uuid> {
        self.replaced_with(like, name, image, None, &Placement::default()).await
    }

    async fn replaced_with(
        &self,
        like: &Vm,
        name: &str,
        image: &ImageTemplate,
        size: Option<VmSize>,
        placement: &Placement,
    ) -> Result<Uuid> {
        let node = like.stamp.clone().unwrap().node;
        let uuid = Uuid::new_v4();
        let replacement = CloneRequest {
            name,
            uuid,
            image,
            settings: CloneSettings::Replaces { vm: like, size },
            stamp: stamp(&node, Some(7)),
            placement,
        };
        let made = self.clone_vm(&replacement, &Free).await?;
        assert_eq!(made, uuid, "the one that its maker has noted");
        Ok(made)
    }

    /// The same, as it is then seen.
    async fn replacement(&self, like: &Vm, name: &str, image: &ImageTemplate) -> Vm {
        let uuid = self.replaced(like, name, image).await.unwrap();
        self.of_uuid(uuid).await
    }

    /// The data disk of a VM, after its detachment.
    async fn detached(&self, vm: &Vm) -> DiskRef {
        let disk = vm.data_disks().next().unwrap().reference.clone();
        self.detach(vm, &disk, &Free).await.unwrap();
        disk
    }

    /// The data disk of a VM, after the removal of the VM.
    async fn left_by(&self, vm: &Vm) -> DiskRef {
        let disk = self.detached(&self.again(vm).await).await;
        self.destroy(&self.again(vm).await, &Free).await.unwrap();
        disk
    }

    /// The only VM with this BIOS UUID, whatever its stamp.
    async fn only(&self, uuid: Uuid) -> Vm {
        let [vm] = <[Vm; 1]>::try_from(self.with_bios_uuid(uuid).await.unwrap()).unwrap();
        vm
    }

    /// The VM that another client has created.
    async fn seen(&self, vm: &vsphere::MoRef) -> Vm {
        self.only(self.client.vm(vm).await.unwrap().bios_uuid.parse().unwrap()).await
    }

    async fn of_uuid(&self, uuid: Uuid) -> Vm {
        let mut found = self.vms().await.unwrap().into_iter().filter(|vm| vm.uuid() == uuid);
        let vm = found.next().expect("a VM");
        assert_eq!(found.next(), None);
        vm
    }

    /// The current state of a VM.
    async fn again(&self, vm: &Vm) -> Vm {
        self.vm(&vm.reference).await.unwrap()
    }
}
