//! Where devices may come from to enrol.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An address, or those that share its first bits: `10.1.0.0/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Range {
    address: IpAddr,
    bits: u8,
}

/// The text is no range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` isn't an address or a range of them: expected one like 10.1.0.0/16 or fd00:1::/32")]
pub struct InvalidRange(String);

impl Range {
    /// Whether an address lies in it; one of IPv4 is one, however it is written.
    pub fn contains(&self, address: IpAddr) -> bool {
        let ((one, width), (other, other_width)) = (bits_of(self.address), bits_of(address.to_canonical()));
        width == other_width && (one ^ other).checked_shr(u32::from(width - self.bits)).unwrap_or(0) == 0
    }
}

/// The bits of an address, and how many it has.
fn bits_of(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u32::from(address).into(), 32),
        IpAddr::V6(address) => (address.into(), 128),
    }
}

impl FromStr for Range {
    type Err = InvalidRange;

    fn from_str(text: &str) -> Result<Self, InvalidRange> {
        let invalid = || InvalidRange(text.chars().take(100).collect());
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let width = bits_of(address).1;
        let bits = bits.map_or(Ok(width), str::parse).map_err(|_| invalid())?;
        if bits <= width { Ok(Self { address, bits }) } else { Err(invalid()) }
    }
}

impl TryFrom<String> for Range {
    type Error = InvalidRange;

    fn try_from(text: String) -> Result<Self, InvalidRange> {
        text.parse()
    }
}

impl From<Range> for String {
    fn from(range: Range) -> Self {
        range.to_string()
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_the_addresses_that_share_its_bits_and_no_others() {
        let has = |range: &str, address: &str| range.parse::<Range>().unwrap().contains(address.parse().unwrap());
        for (range, address) in [
            ("10.1.0.0/16", "10.1.255.255"),
            ("10.1.0.0/16", "::ffff:10.1.2.3"),
            ("0.0.0.0/0", "192.0.2.1"),
            ("192.0.2.1", "192.0.2.1"),
            ("fd00:1::/32", "fd00:1:ffff::1"),
            ("::/0", "2001:db8::1"),
        ] {
            assert!(has(range, address), "{range} {address}");
        }
        for (range, address) in [
            ("10.1.0.0/16", "10.2.0.0"),
            ("192.0.2.1", "192.0.2.2"),
            ("0.0.0.0/0", "2001:db8::1"),
            ("::/0", "192.0.2.1"),
            ("fd00:1::/32", "fd00:2::"),
        ] {
            assert!(!has(range, address), "{range} {address}");
        }
        for odd in ["", "10.1.0.0/33", "10.1/16", "10.1.0.0/", "10.1.0.0/-1", "fd00::/129", "host"] {
            odd.parse::<Range>().unwrap_err();
        }
        let range: Range = "fd00:1::/32".parse().unwrap();
        assert_eq!(range.to_string().parse(), Ok(range));
    }
}
