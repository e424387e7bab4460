//! How large a control plane is where its class is `auto`: by the number of its cluster's workers.

/// A size of control nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ControlPlaneSize {
    /// Virtual processors.
    pub processors: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
}

/// Up to so many workers, such a size. The first has what a control node of the appliance needs at least: 2 processors and 4 GiB.
const SIZES: [(u32, ControlPlaneSize); 6] = [
    (5, ControlPlaneSize { processors: 2, memory_mib: 4 << 10 }),
    (10, ControlPlaneSize { processors: 2, memory_mib: 8 << 10 }),
    (100, ControlPlaneSize { processors: 4, memory_mib: 16 << 10 }),
    (250, ControlPlaneSize { processors: 8, memory_mib: 32 << 10 }),
    (500, ControlPlaneSize { processors: 16, memory_mib: 64 << 10 }),
    (u32::MAX, ControlPlaneSize { processors: 32, memory_mib: 128 << 10 }),
];

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

#[cfg(test)]
mod tests {
    use super::*;

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
