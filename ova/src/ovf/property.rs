//! One property of the product section: its type, its qualifiers, and the values that suit it.
//!
//! Source: DSP0243 1.1 §9.5.1 with tables 6 (types) and 7 (qualifiers). VMware's `Ip` is from descriptors that vSphere
//! exports.

use std::fmt;
use std::net::IpAddr;

/// A line of the form that the operator fills in at import.
#[derive(Clone, Debug, PartialEq)]
pub struct Property {
    /// `ovf:key`, without `.` and `:`.
    pub key: String,
    /// The type of its value.
    pub kind: PropertyType,
    /// Restrictions of the value.
    pub qualifiers: Vec<Qualifier>,
    /// Its first value.
    pub default: Option<String>,
    /// Whether the form shows it. Otherwise it is a constant.
    pub user_configurable: bool,
    /// Whether the form hides what is typed (`ovf:password`). Strings only.
    pub password: bool,
    /// Name in the form.
    pub label: String,
    /// Help in the form.
    pub description: String,
}

/// Types of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertyType {
    /// Text on one line, at most 65535 bytes (vSphere's limit).
    String,
    /// `True` or `False`.
    Boolean,
    /// An unsigned integer of 8, 16, 32 or 64 bits.
    Unsigned {
        /// Its bits.
        bits: u8,
    },
    /// A signed integer of 8, 16, 32 or 64 bits.
    Signed {
        /// Its bits.
        bits: u8,
    },
    /// A floating-point number of 32 or 64 bits.
    Real {
        /// Its bits.
        bits: u8,
    },
    /// A type of another tool, which any text suits. Read, never written.
    Other(String),
}

impl PropertyType {
    /// The type that `ovf:type` names.
    pub fn from_name(name: &str) -> PropertyType {
        let bits = |rest: &str, allowed: &[u8]| rest.parse().ok().filter(|bits| allowed.contains(bits));
        let unsigned = name.strip_prefix("uint").and_then(|rest| bits(rest, &[8, 16, 32, 64]));
        let signed = name.strip_prefix("sint").and_then(|rest| bits(rest, &[8, 16, 32, 64]));
        let real = name.strip_prefix("real").and_then(|rest| bits(rest, &[32, 64]));
        match (name, unsigned, signed, real) {
            ("string", ..) => PropertyType::String,
            ("boolean", ..) => PropertyType::Boolean,
            // Not in table 6, but common, and a sint32 to vSphere.
            ("int", ..) => PropertyType::Signed { bits: 32 },
            (_, Some(bits), ..) => PropertyType::Unsigned { bits },
            (_, _, Some(bits), _) => PropertyType::Signed { bits },
            (_, _, _, Some(bits)) => PropertyType::Real { bits },
            _ => PropertyType::Other(name.into()),
        }
    }
}

impl fmt::Display for PropertyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PropertyType::String => f.write_str("string"),
            PropertyType::Boolean => f.write_str("boolean"),
            PropertyType::Unsigned { bits } => write!(f, "uint{bits}"),
            PropertyType::Signed { bits } => write!(f, "sint{bits}"),
            PropertyType::Real { bits } => write!(f, "real{bits}"),
            PropertyType::Other(name) => f.write_str(name),
        }
    }
}

/// A restriction of a type.
#[derive(Clone, Debug, PartialEq)]
pub enum Qualifier {
    /// At least this number of characters. Never 0, which some clients misread.
    MinLen(u64),
    /// At most this number of characters.
    MaxLen(u64),
    /// At least this number.
    MinValue(f64),
    /// At most this number.
    MaxValue(f64),
    /// One of these.
    ValueMap(Vec<String>),
    /// An IPv4 or IPv6 address (`vmw:qualifiers="Ip"`). vSphere then accepts no empty value.
    Ip,
}

impl Qualifier {
    /// Reads `ovf:qualifiers` or `vmw:qualifiers`, such as `MinLen(1),MaxLen(63)` or `ValueMap{"a","b"}`. Ignores
    /// unknown ones, as importers do.
    pub fn parse_list(text: &str) -> Vec<Qualifier> {
        let mut qualifiers = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let name_end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
            let (name, after) = rest.split_at(name_end);
            let (arguments, after) = arguments(after.trim_start());
            let first = arguments.first().map(String::as_str).unwrap_or_default();
            let qualifier = match name {
                "MinLen" => first.parse().ok().map(Qualifier::MinLen),
                "MaxLen" => first.parse().ok().map(Qualifier::MaxLen),
                "MinValue" => first.parse().ok().map(Qualifier::MinValue),
                "MaxValue" => first.parse().ok().map(Qualifier::MaxValue),
                "ValueMap" => Some(Qualifier::ValueMap(arguments)),
                "Ip" => Some(Qualifier::Ip),
                _ => None,
            };
            qualifiers.extend(qualifier);
            // Each round removes at least one character, whatever it is.
            let skip = usize::from(name.is_empty() && after.len() == rest.len());
            let after = &after[after.chars().next().map_or(0, |c| c.len_utf8() * skip)..];
            rest = after.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
        }
        qualifiers
    }
}

/// Reads `(a,"b")` or `{a,"b"}` at the beginning of `text`. Returns the arguments and the rest of the text.
fn arguments(text: &str) -> (Vec<String>, &str) {
    let close = match text.chars().next() {
        Some('(') => ')',
        Some('{') => '}',
        _ => return (Vec::new(), text),
    };
    let mut arguments = vec![String::new()];
    let mut quote = None;
    let mut characters = text.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        let last = arguments.last_mut().expect("there is always one");
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), '\\') => last.extend(characters.next().map(|(_, c)| c)),
            (Some(_), c) => last.push(c),
            (None, '"' | '\'') => quote = Some(c),
            (None, ',') => arguments.push(String::new()),
            (None, c) if c == close => return (arguments, &text[at + 1..]),
            (None, c) if c.is_whitespace() => {}
            (None, c) => last.push(c),
        }
    }
    (arguments, "")
}

impl fmt::Display for Qualifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Qualifier::MinLen(length) => write!(f, "MinLen({length})"),
            Qualifier::MaxLen(length) => write!(f, "MaxLen({length})"),
            Qualifier::MinValue(value) => write!(f, "MinValue({value})"),
            Qualifier::MaxValue(value) => write!(f, "MaxValue({value})"),
            Qualifier::ValueMap(values) => {
                let quoted: Vec<_> =
                    values.iter().map(|v| format!("\"{}\"", v.replace('\\', "\\\\").replace('"', "\\\""))).collect();
                write!(f, "ValueMap{{{}}}", quoted.join(","))
            }
            Qualifier::Ip => f.write_str("Ip"),
        }
    }
}

/// The reason why a value does not suit a property. It follows the property's name: "port *must be …*".
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unsuitable {
    /// It is not of the type.
    #[error("must be {0}")]
    Type(&'static str),
    /// It is an integer outside of its type's range.
    #[error("must be a whole number from {0} to {1}")]
    Range(i128, i128),
    /// It is too short.
    #[error("must have at least {0} characters")]
    TooShort(u64),
    /// It is too long.
    #[error("must have at most {0} {1}")]
    TooLong(u64, &'static str),
    /// It is too small.
    #[error("must be at least {0}")]
    TooSmall(f64),
    /// It is too large.
    #[error("must be at most {0}")]
    TooLarge(f64),
    /// It is not one of the allowed values.
    #[error("must be one of {}", .0.join(", "))]
    NotListed(Vec<String>),
}

/// The longest value that vSphere keeps, in bytes.
const LONGEST_STRING: u64 = 65535;

impl Property {
    /// Checks a value and returns it in the form of the environment: booleans become `True` and `False`.
    pub fn admit(&self, value: &str) -> Result<String, Unsuitable> {
        let value = self.kind.admit(value)?;
        for qualifier in &self.qualifiers {
            qualifier.admit(&value)?;
        }
        Ok(value)
    }
}

impl PropertyType {
    fn admit(&self, value: &str) -> Result<String, Unsuitable> {
        match *self {
            PropertyType::String | PropertyType::Other(_) if value.len() as u64 > LONGEST_STRING => {
                Err(Unsuitable::TooLong(LONGEST_STRING, "bytes"))
            }
            PropertyType::String | PropertyType::Other(_) => Ok(value.into()),
            PropertyType::Boolean => match value.to_ascii_lowercase().as_str() {
                "true" => Ok("True".into()),
                "false" => Ok("False".into()),
                _ => Err(Unsuitable::Type("True or False")),
            },
            PropertyType::Unsigned { bits } => integer(value, 0, (1 << bits) - 1),
            PropertyType::Signed { bits } => integer(value, -(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            PropertyType::Real { .. } => match value.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(value.into()),
                _ => Err(Unsuitable::Type("a number")),
            },
        }
    }
}

fn integer(value: &str, least: i128, most: i128) -> Result<String, Unsuitable> {
    match value.parse::<i128>() {
        Ok(number) if (least..=most).contains(&number) => Ok(value.into()),
        _ => Err(Unsuitable::Range(least, most)),
    }
}

impl Qualifier {
    fn admit(&self, value: &str) -> Result<(), Unsuitable> {
        let characters = || value.chars().count() as u64;
        let number = || value.parse::<f64>().map_err(|_| Unsuitable::Type("a number"));
        match self {
            Qualifier::MinLen(least) if characters() < *least => Err(Unsuitable::TooShort(*least)),
            Qualifier::MaxLen(most) if characters() > *most => Err(Unsuitable::TooLong(*most, "characters")),
            Qualifier::MinValue(least) if number()? < *least => Err(Unsuitable::TooSmall(*least)),
            Qualifier::MaxValue(most) if number()? > *most => Err(Unsuitable::TooLarge(*most)),
            Qualifier::ValueMap(values) if !values.iter().any(|allowed| allowed == value) => {
                Err(Unsuitable::NotListed(values.clone()))
            }
            Qualifier::Ip if value.parse::<IpAddr>().is_err() => Err(Unsuitable::Type("an IPv4 or IPv6 address")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn property(kind: &str, qualifiers: &str) -> Property {
        Property {
            key: "p".into(),
            kind: PropertyType::from_name(kind),
            qualifiers: Qualifier::parse_list(qualifiers),
            default: None,
            user_configurable: true,
            password: false,
            label: "P".into(),
            description: String::new(),
        }
    }

    #[test]
    fn values_are_admitted_or_refused_with_the_reason() {
        let cases = [
            ("string", "", "any ü", Ok("any ü")),
            ("string", "MinLen(2),MaxLen(3)", "äöü", Ok("äöü")),
            ("string", "MinLen(2)", "a", Err("must have at least 2 characters")),
            ("string", "MinLen(1)", "", Err("must have at least 1 characters")),
            ("string", "MaxLen(3)", "abcd", Err("must have at most 3 characters")),
            ("string", r#"ValueMap{"one","t\"wo"}"#, "t\"wo", Ok("t\"wo")),
            ("string", r#"ValueMap{"one","two"}"#, "three", Err("must be one of one, two")),
            ("string", "Ip", "fe80::1", Ok("fe80::1")),
            ("string", "Ip()", "10.0.0.256", Err("must be an IPv4 or IPv6 address")),
            ("string", "Ip", "", Err("must be an IPv4 or IPv6 address")),
            ("boolean", "", "TRUE", Ok("True")),
            ("boolean", "", "false", Ok("False")),
            ("boolean", "", "yes", Err("must be True or False")),
            ("uint16", "", "65535", Ok("65535")),
            ("uint16", "", "65536", Err("must be a whole number from 0 to 65535")),
            ("uint16", "", "-1", Err("must be a whole number from 0 to 65535")),
            ("uint64", "", "18446744073709551615", Ok("18446744073709551615")),
            ("sint8", "", "-129", Err("must be a whole number from -128 to 127")),
            ("int", "MinValue(1),MaxValue(20)", "21", Err("must be at most 20")),
            ("int", "MinValue(1) MaxValue(20)", "0", Err("must be at least 1")),
            ("int", "", "", Err("must be a whole number from -2147483648 to 2147483647")),
            ("real32", "", "1.5", Ok("1.5")),
            ("real64", "", "inf", Err("must be a number")),
            ("password(..6)", "", "whatever", Ok("whatever")),
        ];
        for (kind, qualifiers, value, expected) in cases {
            let admitted = property(kind, qualifiers).admit(value).map_err(|error| error.to_string());
            assert_eq!(admitted.as_deref(), expected.map_err(String::from).as_deref(), "{kind} {qualifiers} {value}");
        }
        let long = "x".repeat(65536);
        assert_eq!(property("string", "").admit(&long), Err(Unsuitable::TooLong(65535, "bytes")));
    }

    #[test]
    fn types_and_qualifiers_survive_the_round_trip() {
        for kind in ["string", "boolean", "uint8", "uint16", "uint32", "uint64", "sint8", "sint64", "real32", "real64"]
        {
            assert_eq!(PropertyType::from_name(kind).to_string(), kind);
            assert!(!matches!(PropertyType::from_name(kind), PropertyType::Other(_)), "{kind}");
        }
        for list in ["MinLen(1),MaxLen(63)", r#"ValueMap{"a","b c","d\"\\,}"}"#, "MinValue(-1.5)", "Ip"] {
            let parsed = Qualifier::parse_list(list);
            assert_eq!(parsed.iter().map(ToString::to_string).collect::<Vec<_>>().join(","), list);
        }
        assert_eq!(Qualifier::parse_list("Net(\"x\") , ??MinLen ( 3 )"), [Qualifier::MinLen(3)]);
    }

    proptest::proptest! {
        #[test]
        fn any_qualifier_text_is_read_to_its_end(text in ".{0,60}") {
            Qualifier::parse_list(&text);
        }
    }
}
