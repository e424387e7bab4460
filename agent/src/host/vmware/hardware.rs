//! The VMware backdoor of the machine itself. Only this module has unsafe code.

#![allow(unsafe_code)] // The backdoor is an I/O instruction, which has no safe form.

use super::backdoor::{Port, Registers};

/// The port of this VM's hypervisor.
pub struct Hardware {
    /// Only [`Hardware::detect`] creates one: on other machines the instruction kills the process.
    _detected: (),
}

#[cfg(target_arch = "x86_64")]
impl Hardware {
    /// The backdoor, if CPUID shows VMware as the hypervisor: leaf 1 has the hypervisor bit, leaf 0x40000000 the vendor
    /// "VMwareVMware" (VMware knowledge base article 1009458).
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
        // SAFETY: `detect` has proved that the hypervisor is VMware's, which handles this `in` at any privilege level
        // without a fault. The instruction reads and writes only the named registers, and no memory. LLVM reserves rbx,
        // so it is exchanged before and after.
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
    /// The backdoor does not exist in this form on other architectures.
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
