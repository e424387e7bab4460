//! The images that VMs are made from: what is unpacked of an OVA, and what a new VM takes over from another one.

use std::fs;
use std::path::Path;

use fleet::hypervisor::{Error, Result, Staged, Stamp, Vm};

use crate::{Lab, NewVm, Source, Unpacked, cache_directory};

/// A replacement that outlives the call which asked for it.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) image: Staged,
    pub(super) like: Vm,
    pub(super) stamp: Stamp,
}

impl Lab {
    /// What is unpacked of the OVA with this digest, if it is.
    pub(super) fn staged(&self, digest: String) -> Result<Option<Staged>> {
        let cache = cache_directory().map_err(Error::transient)?;
        let found = Unpacked::find(&cache, &digest).map_err(Error::transient)?;
        Ok(found.map(|unpacked| as_staged(&unpacked, digest)))
    }

    /// Takes the OVA apart, or finds it so; it is the one of `digest`.
    pub(super) fn stage(&self, ova: &Path, digest: String) -> Result<Staged> {
        let cache = cache_directory().map_err(Error::transient)?;
        let unpacked =
            Unpacked::ensure(ova, &cache, &self.tools(), &|what| log::info!("{what}")).map_err(Error::transient)?;
        if unpacked.digest() != digest {
            return Err(Error::refused(format!("{} is not the OVA that was planned with", ova.display())));
        }
        Ok(as_staged(&unpacked, digest))
    }

    /// What the new VM is to be.
    pub(super) fn replacement(&self, wanted: &Wanted) -> Result<NewVm> {
        let Wanted { name, image, like, stamp } = wanted;
        let Some(node) = self.plan().nodes.iter().find(|planned| planned.name == stamp.node) else {
            return Err(Error::refused(format!("the lab {} was not made with a node {}", self.name, stamp.node)));
        };
        let Some(unpacked) = Unpacked::at(Path::new(&image.reference)) else {
            return Err(Error::not_found(format!("the image {} is not unpacked any more", image.reference)));
        };
        if unpacked.digest() != image.digest {
            return Err(Error::refused(format!("{} is not the image that was planned with", image.reference)));
        }
        let like = self.as_seen(like)?;
        if self.directory.recall_vm(name).map_err(Error::transient)?.is_some() {
            return Err(Error::refused(format!("the lab {} has a VM {name} already", self.name)));
        }
        Ok(NewVm {
            name: name.clone(),
            memory: like.memory,
            processors: like.processors,
            data_disk: None,
            network_interface: true,
            properties: node.properties.clone(),
            source: Some(Source::Ova { unpacked }),
            engine: self.replacements(),
            stamp: Some(stamp.clone()),
        })
    }

    /// Removes what a crash left without a record: it was never a VM.
    pub(super) fn clear_place_of(&self, vm: &str) -> Result<()> {
        let left = self.directory.vm(vm);
        if left.exists() {
            fs::remove_dir_all(&left).map_err(Error::transient)?;
        }
        Ok(())
    }
}

fn as_staged(unpacked: &Unpacked, digest: String) -> Staged {
    Staged { digest, reference: unpacked.directory().display().to_string() }
}
