//! Amounts of bytes: a number and its unit.

use roxmltree::Node;

use super::document::{Look, ParseError, number, wrong};

/// A `Disk`'s capacity (`ovf:capacity`, DSP0243 1.1 §9.1), in bytes.
pub(super) fn capacity<'a>(node: Node<'a, 'a>) -> Result<u64, ParseError> {
    let amount: u64 = number(node, node.need_ovf("capacity")?)?;
    let not_bytes = || wrong(node, format!("{amount} times {:?} is not a capacity in bytes", units(node)));
    in_units(node, amount).ok_or_else(not_bytes)
}

/// The key of the property with a `Disk`'s capacity (`${key}`). Only a disk that is empty at first has one.
pub(super) fn property<'a>(node: Node<'a, 'a>) -> Option<&'a str> {
    node.ovf("capacity")?.trim().strip_prefix("${")?.strip_suffix('}')
}

/// `amount` units of a `Disk`'s capacity, in bytes.
pub(super) fn in_units<'a>(node: Node<'a, 'a>, amount: u64) -> Option<u64> {
    in_bytes(amount, units(node))
}

fn units<'a>(node: Node<'a, 'a>) -> &'a str {
    node.ovf("capacityAllocationUnits").unwrap_or("byte")
}

/// `amount` times a programmatic unit (DSP0004 2.5 annex C.1), in bytes. A unit is `byte` or `bit`, then up to two
/// factors such as `* 2^30`, `* 1000` or `/ 8`. `None` for other units, fractions of bytes, and 16 EiB or more.
pub(super) fn in_bytes(amount: u64, units: &str) -> Option<u64> {
    let end = units.find(['*', '/']).unwrap_or(units.len());
    let (mut numerator, mut denominator) = match units[..end].trim() {
        "byte" | "" => (1, 1),
        "bit" => (1, 8),
        // Names of older descriptors, from before DSP0004 2.4.
        "Bytes" => (1, 1),
        "KiloBytes" | "KB" => (1 << 10, 1),
        "MegaBytes" | "MB" => (1 << 20, 1),
        "GigaBytes" | "GB" => (1 << 30, 1),
        "TeraBytes" | "TB" => (1 << 40, 1),
        _ => return None,
    };
    let mut rest = &units[end..];
    for _ in 0..2 {
        let Some(after) = rest.get(1..) else { break };
        let end = after.find(['*', '/']).unwrap_or(after.len());
        let (mut over, mut under) = factor(after[..end].trim())?;
        if rest.starts_with('/') {
            (over, under) = (under, over);
        }
        numerator = over.checked_mul(numerator)?;
        denominator = under.checked_mul(denominator)?;
        rest = &after[end..];
    }
    let total = u128::from(amount).checked_mul(numerator)?;
    let whole = rest.is_empty() && total.checked_rem(denominator)? == 0;
    u64::try_from(total / denominator).ok().filter(|_| whole)
}

/// A factor such as `1000`, `1.5` or `2^-3`, as numerator and denominator.
fn factor(text: &str) -> Option<(u128, u128)> {
    let whole = |text: &str| text.trim().strip_prefix('+').unwrap_or(text.trim()).parse::<u128>().ok();
    if let Some((base, exponent)) = text.split_once('^') {
        let exponent: i32 = exponent.trim().parse().ok()?;
        let power = whole(base)?.checked_pow(exponent.unsigned_abs())?;
        return Some(if exponent < 0 { (1, power) } else { (power, 1) });
    }
    let (before, after) = text.split_once('.').unwrap_or((text, ""));
    let under = 10u128.checked_pow(u32::try_from(after.len()).ok()?)?;
    let fraction = if after.is_empty() { 0 } else { after.parse::<u128>().ok()? };
    Some((whole(before)?.checked_mul(under)?.checked_add(fraction)?, under))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_dsp0004() {
        for (amount, units, expected) in [
            (5, "byte", Some(5)),
            (5, "", Some(5)),
            (8, "byte * 2^30", Some(8 << 30)),
            (8, "byte*2^40", Some(8 << 40)),
            (8, "byte * 2 ^ 20", Some(8 << 20)),
            (8, "byte * 10^9", Some(8_000_000_000)),
            (8, "byte * 1024", Some(8 << 10)),
            (8, "byte * 1.5 * 2^+10", Some(12 << 10)),
            (8, "byte * +512", Some(4096)),
            (16, "bit", Some(2)),
            (16, "bit * 2^30", Some(2 << 30)),
            (8, "bit * 10^3 / 8", Some(125)),
            (4096, "byte / 2^10", Some(4)),
            (4096, "byte * 2^-10", Some(4)),
            (8, "MegaBytes", Some(8 << 20)),
            (8, "TB", Some(8 << 40)),
            (u64::MAX, "byte", Some(u64::MAX)),
            // Fractions of bytes, too many bytes, other units, and texts outside the grammar.
            (3, "bit", None),
            (u64::MAX, "byte * 2", None),
            (1, "byte * 2^64", None),
            (1, "byte * 2^200", None),
            (1, "byte / 0", None),
            (1, "byte * 0^-1", None),
            (1, "hertz * 10^6", None),
            (1, "metre", None),
            (1, "byte * 2 * 2 * 2", None),
            (1, "byte *", None),
            (1, "byte * 2^2 0", None),
            (1, "byte * -2", None),
            (1, "byte ^ 2", None),
            (1, "byte * 1.x", None),
        ] {
            assert_eq!(in_bytes(amount, units), expected, "{amount} times {units:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_unit_is_read_or_refused(amount: u64, units in "(byte|bit)?( ?[*/] ?[0-9^.+-]{0,40}){0,3}.{0,5}") {
            let _ = in_bytes(amount, &units);
        }
    }
}
