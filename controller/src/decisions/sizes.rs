//! The size of control-plane nodes: that of their class, or with `auto` by the number of their cluster's workers.

use std::fmt;
use std::ops::RangeInclusive;

use fleet::control_plane::DeployStatus;
use fleet::hypervisor::VmSize;

use super::obstacle::Obstacle;
use crate::objects::{AUTO, ControlPlaneSize, Resolved, TenantClusterReason, TenantClusterSpec, VMClassSpec};

/// Maximum number of workers for each size. The first size is the appliance's minimum for a control-plane node: 2 processors and
/// 4 GiB.
const SIZES: [(u32, ControlPlaneSize); 6] = [
    (5, ControlPlaneSize { processors: 2, memory_mib: 4 << 10 }),
    (10, ControlPlaneSize { processors: 2, memory_mib: 8 << 10 }),
    (100, ControlPlaneSize { processors: 4, memory_mib: 16 << 10 }),
    (250, ControlPlaneSize { processors: 8, memory_mib: 32 << 10 }),
    (500, ControlPlaneSize { processors: 16, memory_mib: 64 << 10 }),
    (u32::MAX, ControlPlaneSize { processors: 32, memory_mib: 128 << 10 }),
];

/// The ranges of an object's fields: no Machine accepts another number.
const PROCESSORS: RangeInclusive<u32> = 1..=128;
const MEMORY_MIB: RangeInclusive<u32> = (1 << 10)..=(4 << 20);

pub fn automatic(workers: u32) -> ControlPlaneSize {
    let fits = SIZES.iter().find(|(most, _)| workers <= *most);
    fits.unwrap_or(&SIZES[SIZES.len() - 1]).1
}

/// The larger size that control-plane nodes get at their next image swap. `None` if their size suffices. They do not shrink by
/// themselves: a large cluster may become large again, and a swap costs more than memory.
pub fn grown(now: ControlPlaneSize, workers: u32) -> Option<ControlPlaneSize> {
    let fits = automatic(workers);
    let wanted = ControlPlaneSize {
        processors: now.processors.max(fits.processors),
        memory_mib: now.memory_mib.max(fits.memory_mib),
    };
    (wanted != now).then_some(wanted)
}

impl ControlPlaneSize {
    /// The maximum of both, in processors and in memory.
    #[must_use]
    pub fn larger(self, other: Self) -> Self {
        Self { processors: self.processors.max(other.processors), memory_mib: self.memory_mib.max(other.memory_mib) }
    }

    /// Converts from `fleet`. `None` if no object can have this size.
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

/// The size in the cluster's resolved values. `None` if they have no size.
pub fn pinned_size(pinned: &Resolved) -> Option<ControlPlaneSize> {
    let (processors, memory_mib) = pinned.processors.zip(pinned.memory_mib)?;
    Some(ControlPlaneSize { processors, memory_mib })
}

/// The size of the VM that a control-plane node runs in. `None` if it was not observed, or if no object can have it.
pub fn seen_size(seen: &DeployStatus, node: &str) -> Option<ControlPlaneSize> {
    seen.nodes.iter().find(|it| it.name == node)?.size.and_then(ControlPlaneSize::of)
}

/// The wanted size of control-plane nodes that have formed a cluster. It is that of their class. With `auto` it follows from the
/// number of workers, and is at least the current one.
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
    fn each_size_covers_its_range_of_workers() {
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
    fn class_sets_the_size_and_auto_never_shrinks() {
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

    /// A Machine with one of these values would be rejected, and its cluster would be stuck.
    #[test]
    fn size_outside_the_ranges_is_ignored() {
        let of = |processors, memory| ControlPlaneSize::of(VmSize { processors, memory });
        assert_eq!(of(2, 4096), Some(ControlPlaneSize { processors: 2, memory_mib: 4096 }));
        assert_eq!(of(128, 4 << 20), Some(ControlPlaneSize { processors: 128, memory_mib: 4 << 20 }));
        for (processors, memory) in [(0, 4096), (129, 4096), (2, 1023), (2, (4 << 20) + 1), (2, u64::MAX)] {
            assert_eq!(of(processors, memory), None, "{processors} {memory}");
        }
    }

    #[test]
    fn control_plane_grows_with_workers_and_never_shrinks() {
        let small = automatic(5);
        assert_eq!(grown(small, 5), None);
        assert_eq!(grown(small, 50), Some(automatic(50)));
        assert_eq!(grown(automatic(500), 1), None);
        // A larger value that a class has set is kept.
        let odd = ControlPlaneSize { processors: 16, memory_mib: 4096 };
        assert_eq!(grown(odd, 50), Some(ControlPlaneSize { processors: 16, memory_mib: 16384 }));
    }
}
