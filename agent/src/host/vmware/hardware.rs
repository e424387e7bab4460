//! The VMware backdoor of the machine itself: the only module with unsafe
//! code. Knows registers, nothing of messages.

#![allow(unsafe_code)] // The backdoor is an I/O instruction, which has no safe form.

use super::backdoor::{Port, Registers};

/// The port of the hypervisor that this VM runs on.
pub struct Hardware {
    /// Only [`Hardware::detect`] makes one: elsewhere the instruction kills the process.
    _detected: (),
}

#[cfg(target_arch = "x86_64")]
impl Hardware {
    /// The backdoor, if CPUID says that the hypervisor is VMware's: leaf 1 has
    /// the hypervisor bit, leaf 0x40000000 the vendor "VMwareVMware" (VMware
    /// knowledge base article 1009458).
    pub fn detect() -> Option<Self> {
        use std::arch::x86_64::__cpuid;
        const HYPERVISOR_PRESENT: u32 = 1 << 31;
        if __cpuid(1).ecx & HYPERVISOR_PRESENT == 0 {
            return None;
        }
        let leaf = __cpuid(0x4000_0000);
        let vendor: Vec<u8> = [leaf.ebx, leaf.ecx, leaf.edx].iter().flat_map(|part| part.to_le_bytes()).collect();
        (vendor == b"VMwareVMware").then_some(Self { _detected: () })
    }
}

#[cfg(target_arch = "x86_64")]
impl Port for Hardware {
    fn exchange(&mut self, registers: Registers) -> Registers {
        let Registers { mut eax, ebx, mut ecx, mut edx, mut esi, mut edi } = registers;
        let mut b = u64::from(ebx);
        // SAFETY: `detect` has proved that the hypervisor is VMware's, which
        // answers this `in` at any privilege level instead of letting it fault.
        // The instruction reads and writes the named registers only, no
        // memory. LLVM keeps rbx to itself, so it is exchanged before and after.
        unsafe {
            std::arch::asm!(
                "xchg {b:r}, rbx",
                "in eax, dx",
                "xchg {b:r}, rbx",
                b = inout(reg) b,
                inout("eax") eax,
                inout("ecx") ecx,
                inout("edx") edx,
                inout("esi") esi,
                inout("edi") edi,
                options(nostack),
            );
        }
        Registers { eax, ebx: b as u32, ecx, edx, esi, edi }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Hardware {
    /// The backdoor, which other architectures do not have in this form.
    pub fn detect() -> Option<Self> {
        None
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Port for Hardware {
    fn exchange(&mut self, registers: Registers) -> Registers {
        registers
    }
}
