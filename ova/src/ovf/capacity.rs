//! Amounts of bytes: a number and its unit.

use roxmltree::Node;

use super::document::{Look, ParseError, number, wrong};

/// A `Disk`'s capacity, in bytes.
pub(super) fn capacity<'a>(node: Node<'a, 'a>) -> Result<u64, ParseError> {
    let units = node.ovf("capacityAllocationUnits").unwrap_or("byte");
    let amount: u64 = number(node, node.need_ovf("capacity")?)?;
    scale(units)
        .and_then(|scale| amount.checked_mul(scale))
        .ok_or_else(|| wrong(node, format!("{amount} times {units:?} is not a capacity in bytes")))
}

/// A programmatic unit (DSP0004 annex C.1) of bytes, such as `byte * 2^30`, as a factor.
pub(super) fn scale(units: &str) -> Option<u64> {
    let units: String = units.split_whitespace().collect();
    match units.as_str() {
        "byte" | "" => Some(1),
        // Names of older descriptors.
        "KiloBytes" | "KB" => Some(1 << 10),
        "MegaBytes" | "MB" => Some(1 << 20),
        "GigaBytes" | "GB" => Some(1 << 30),
        power => {
            let (base, exponent) = power.strip_prefix("byte*")?.split_once('^')?;
            base.parse::<u64>().ok()?.checked_pow(exponent.parse().ok()?)
        }
    }
}
