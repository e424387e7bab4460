//! The images of VMs: the unpacked parts of an OVA, and the settings that a new VM takes from another one.

use std::path::Path;

use fleet::hypervisor::{Error, ImageTemplate, Result, Stamp, Vm, VmSize};

use crate::records::{LONGEST_REPLACEMENT, check_name};
use crate::{Lab, NewVm, Source, UnpackedOva, cache_directory, environment};

impl Lab {
    pub(super) fn find_unpacked(&self, digest: String) -> Result<Option<ImageTemplate>> {
        let cache = cache_directory().map_err(Error::transient)?;
        let found = UnpackedOva::find(&cache, &digest).map_err(Error::transient)?;
        Ok(found.map(|unpacked| as_staged(&unpacked, digest)))
    }

    /// Unpacks the OVA with this digest, or finds it unpacked.
    pub(super) fn unpack_template(&self, ova: &Path, digest: String) -> Result<ImageTemplate> {
        let cache = cache_directory().map_err(Error::transient)?;
        let unpacked =
            UnpackedOva::ensure(ova, &cache, &self.tools(), &|what| log::info!("{what}")).map_err(Error::transient)?;
        if unpacked.digest() != digest {
            return Err(Error::refused(format!("{} is not the OVA that was planned with", ova.display())));
        }
        Ok(as_staged(&unpacked, digest))
    }

    pub(super) fn replacement(
        &self,
        name: String,
        image: &ImageTemplate,
        like: &Vm,
        size: Option<VmSize>,
        stamp: Stamp,
    ) -> Result<NewVm> {
        let Some(node) = self.plan().nodes.iter().find(|planned| planned.name == stamp.node) else {
            return Err(Error::refused(format!("the lab {} was not made with a node {}", self.name, stamp.node)));
        };
        let source = image_of(image)?;
        let like = self.as_seen(like, stamp.deployment)?;
        self.may_have(&name)?;
        let memory = size.map_or(Ok(like.memory), |size| u32::try_from(size.memory));
        let memory = memory.map_err(|_| Error::refused(format!("{name} is to have more memory than a lab gives")))?;
        Ok(NewVm {
            name,
            memory,
            processors: size.map_or(like.processors, |size| size.processors),
            data_disk: None,
            network_interface: true,
            properties: node.properties.clone(),
            source: Some(source),
            engine: self.replacements(),
            stamp: Some(stamp),
            in_order_uuid: false,
        })
    }

    /// A VM that replaces no other one, made from an image. Properties that vCenter would refuse are refused before
    /// anything is created.
    pub(super) fn addition(&self, vm: NewVm, image: &ImageTemplate) -> Result<NewVm> {
        let source = image_of(image)?;
        self.may_have(&vm.name)?;
        if let Some(twin) = self.vm_records()?.into_iter().find(|record| record.stamp == vm.stamp) {
            return Err(Error::refused(format!("{} carries the stamp that {} was to have", twin.name, vm.name)));
        }
        environment::import(&source, &vm.properties, "")
            .map_err(|error| Error::refused(format!("importing {}: {error:#}", vm.name)))?;
        Ok(NewVm { source: Some(source), ..vm })
    }

    /// Refuses a name that is taken or invalid. A retry fails too.
    fn may_have(&self, vm: &str) -> Result<()> {
        check_name("the VM's name", vm, LONGEST_REPLACEMENT).map_err(|error| Error::refused(error.to_string()))?;
        if self.directory.recall_vm(vm).map_err(Error::transient)?.is_some() {
            return Err(Error::refused(format!("the lab {} has a VM {vm} already", self.name)));
        }
        Ok(())
    }
}

fn image_of(image: &ImageTemplate) -> Result<Source> {
    let Some(unpacked) = UnpackedOva::at(Path::new(&image.reference)) else {
        return Err(Error::not_found(format!("the image {} is no longer unpacked", image.reference)));
    };
    if unpacked.digest() != image.digest {
        return Err(Error::refused(format!("{} is not the image that was planned with", image.reference)));
    }
    Ok(Source::Ova { unpacked })
}

fn as_staged(unpacked: &UnpackedOva, digest: String) -> ImageTemplate {
    ImageTemplate { digest, reference: unpacked.directory().display().to_string() }
}
