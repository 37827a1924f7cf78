//! Communication between the devices of a group.

use crate::units::{Bytes, BytesPerSecond, Seconds};

/// A group of devices that exchange data over equal links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Devices.
    pub size: u64,
    /// Bandwidth of one device's link, per direction.
    pub bandwidth: BytesPerSecond,
    /// Time of one hop without data.
    pub latency: Seconds,
}

impl Group {
    /// All-reduce of a message that every device holds: the faster of three algorithms.
    ///
    /// # Formula
    /// For `n` devices, message `M`, link `B` per direction and hop latency `a`:
    /// - one-shot: `a + (n-1) * M/B`
    /// - two-shot (reduce-scatter, then all-gather): `2a + 2 (n-1)/n * M/B`
    /// - ring: `2 (n-1) * (a + M/(n B))`, never faster than two-shot on fully connected links, so two-shot stands for both.
    ///
    /// One device needs none. Source: nccl-tests, PERFORMANCE.md (bus bandwidth factor `2(n-1)/n`).
    ///
    /// ```
    /// use llm_roofline::{collective::Group, units::*};
    /// let nvlink = Group { size: 8, bandwidth: BytesPerSecond::from_gb_per_second(450.0), latency: Seconds::ZERO };
    /// assert_eq!(nvlink.all_reduce(Bytes::from_mb(16.0)).to_string(), "62.2 us");
    /// ```
    pub fn all_reduce(&self, message: Bytes) -> Seconds {
        if self.size <= 1 {
            return Seconds::ZERO;
        }
        let others = (self.size - 1) as f64;
        let transfer = message / self.bandwidth;
        let one_shot = self.latency + transfer * others;
        let two_shot = self.latency * 2.0 + transfer * (2.0 * others / self.size as f64);
        one_shot.min(two_shot)
    }

    /// All-gather of a message of which every device holds an equal part: `a + (n-1)/n * M/B`.
    pub fn all_gather(&self, message: Bytes) -> Seconds {
        if self.size <= 1 {
            return Seconds::ZERO;
        }
        self.latency + message / self.bandwidth * ((self.size - 1) as f64 / self.size as f64)
    }
}
