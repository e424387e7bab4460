//! How large control nodes are to be: by their class, or where that is `auto` by the number of their cluster's workers.

use std::fmt;
use std::ops::RangeInclusive;

use fleet::control_plane::DeployStatus;
use fleet::hypervisor::VmSize;

use super::obstacle::Obstacle;
use crate::objects::{AUTO, ControlPlaneSize, Resolved, TenantClusterReason, TenantClusterSpec, VMClassSpec};

/// Up to so many workers, such a size. The first has what a control node of the appliance needs at least: 2 processors and 4 GiB.
const SIZES: [(u32, ControlPlaneSize); 6] = [
    (5, ControlPlaneSize { processors: 2, memory_mib: 4 << 10 }),
    (10, ControlPlaneSize { processors: 2, memory_mib: 8 << 10 }),
    (100, ControlPlaneSize { processors: 4, memory_mib: 16 << 10 }),
    (250, ControlPlaneSize { processors: 8, memory_mib: 32 << 10 }),
    (500, ControlPlaneSize { processors: 16, memory_mib: 64 << 10 }),
    (u32::MAX, ControlPlaneSize { processors: 32, memory_mib: 128 << 10 }),
];

/// What an object may say of a node: no Machine takes another number.
const PROCESSORS: RangeInclusive<u32> = 1..=128;
const MEMORY_MIB: RangeInclusive<u32> = (1 << 10)..=(4 << 20);

/// The size for so many workers.
pub fn automatic(workers: u32) -> ControlPlaneSize {
    let fits = SIZES.iter().find(|(most, _)| workers <= *most);
    fits.unwrap_or(&SIZES[SIZES.len() - 1]).1
}

/// The size that control nodes of this one are to have at their next swap, for so many workers; none where it suffices. They do
/// not become smaller by themselves: what was large once may be so again, and a swap costs more than memory.
pub fn grown(now: ControlPlaneSize, workers: u32) -> Option<ControlPlaneSize> {
    let fits = automatic(workers);
    let wanted = ControlPlaneSize {
        processors: now.processors.max(fits.processors),
        memory_mib: now.memory_mib.max(fits.memory_mib),
    };
    (wanted != now).then_some(wanted)
}

impl ControlPlaneSize {
    /// The larger of both, in processors and in memory.
    #[must_use]
    pub fn larger(self, other: Self) -> Self {
        Self { processors: self.processors.max(other.processors), memory_mib: self.memory_mib.max(other.memory_mib) }
    }

    /// As `fleet` has it; none of one that no object can name.
    pub fn of(size: VmSize) -> Option<Self> {
        let size = Self { processors: size.processors, memory_mib: size.memory.try_into().ok()? };
        (PROCESSORS.contains(&size.processors) && MEMORY_MIB.contains(&size.memory_mib)).then_some(size)
    }
}

impl From<ControlPlaneSize> for VmSize {
    fn from(size: ControlPlaneSize) -> Self {
        Self { processors: size.processors, memory: size.memory_mib.into() }
    }
}

impl fmt::Display for ControlPlaneSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        VmSize::from(*self).fmt(f)
    }
}

/// How large the control nodes of a cluster are by what is pinned of it; none if that does not say it.
pub fn pinned_size(pinned: &Resolved) -> Option<ControlPlaneSize> {
    let (processors, memory_mib) = pinned.processors.zip(pinned.memory_mib)?;
    Some(ControlPlaneSize { processors, memory_mib })
}

/// How large the VM is that a control node was seen to run in; none where nobody could look, or it has a size that no object can name.
pub fn seen_size(seen: &DeployStatus, node: &str) -> Option<ControlPlaneSize> {
    seen.nodes.iter().find(|it| it.name == node)?.size.and_then(ControlPlaneSize::of)
}

/// How large control nodes are to be now that have formed: as their class, whatever that makes of them; or where it is `auto` by so many
/// workers, and never smaller than they are.
///
/// # Errors
/// There is no such class.
pub fn wanted_size(
    spec: &TenantClusterSpec,
    pinned: &Resolved,
    class: Option<&VMClassSpec>,
    workers: u32,
) -> Result<ControlPlaneSize, Obstacle> {
    let name = &spec.control_plane.vm_class;
    if name == AUTO {
        return Ok(match pinned_size(pinned) {
            Some(now) => grown(now, workers).unwrap_or(now),
            None => automatic(workers),
        });
    }
    match class {
        Some(class) => Ok(ControlPlaneSize { processors: class.processors, memory_mib: class.memory_mib }),
        None => Err(Obstacle::new(TenantClusterReason::ReferenceMissing, format!("there is no VMClass {name}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::fixture::{class, cluster};

    #[test]
    fn each_size_holds_up_to_its_last_worker() {
        let of = |workers| {
            let size = automatic(workers);
            (size.processors, size.memory_mib >> 10)
        };
        let table = [
            (0, (2, 4)),
            (5, (2, 4)),
            (6, (2, 8)),
            (10, (2, 8)),
            (11, (4, 16)),
            (100, (4, 16)),
            (101, (8, 32)),
            (250, (8, 32)),
            (251, (16, 64)),
            (500, (16, 64)),
            (501, (32, 128)),
            (10_000, (32, 128)),
        ];
        for (workers, size) in table {
            assert_eq!(of(workers), size, "{workers}");
        }
    }

    #[test]
    fn a_named_class_is_the_size_and_auto_never_shrinks() {
        let mut spec = cluster().spec;
        let class = class();
        let now = Resolved { processors: Some(8), memory_mib: Some(4096), ..Resolved::default() };
        let nothing = Resolved::default();
        let of = |spec: &TenantClusterSpec, pinned: &Resolved, class: Option<&VMClassSpec>, workers| {
            wanted_size(spec, pinned, class, workers).map(|size| (size.processors, size.memory_mib))
        };
        assert_eq!(of(&spec, &now, None, 0), Ok((8, 4096)));
        assert_eq!(of(&spec, &now, None, 30), Ok((8, 16384)));
        assert_eq!(of(&spec, &nothing, None, 30), Ok((4, 16384)));
        spec.control_plane.vm_class = "medium".to_owned();
        assert_eq!(of(&spec, &now, Some(&class), 300), Ok((4, 16384)));
        assert_eq!(of(&spec, &now, None, 0).unwrap_err().reason, TenantClusterReason::ReferenceMissing);
    }

    /// A Machine that was to say one of these would be refused, and its cluster with it.
    #[test]
    fn what_somebody_has_made_of_a_vm_that_no_object_can_name_is_no_size() {
        let of = |processors, memory| ControlPlaneSize::of(VmSize { processors, memory });
        assert_eq!(of(2, 4096), Some(ControlPlaneSize { processors: 2, memory_mib: 4096 }));
        assert_eq!(of(128, 4 << 20), Some(ControlPlaneSize { processors: 128, memory_mib: 4 << 20 }));
        for (processors, memory) in [(0, 4096), (129, 4096), (2, 1023), (2, (4 << 20) + 1), (2, u64::MAX)] {
            assert_eq!(of(processors, memory), None, "{processors} {memory}");
        }
    }

    #[test]
    fn a_control_plane_grows_with_its_workers_and_never_shrinks() {
        let small = automatic(5);
        assert_eq!(grown(small, 5), None);
        assert_eq!(grown(small, 50), Some(automatic(50)));
        assert_eq!(grown(automatic(500), 1), None);
        // What a class had given it is kept where it is more.
        let odd = ControlPlaneSize { processors: 16, memory_mib: 4096 };
        assert_eq!(grown(odd, 50), Some(ControlPlaneSize { processors: 16, memory_mib: 16384 }));
    }
}
