//! What a step costs.

use crate::operator::OperatorClass;
use crate::roofline::{Bound, Work};
use crate::units::{Bytes, Flops, Seconds};

/// Time, work and traffic of one step, or of several steps together, on each device.
///
/// Times add up over the operators, which run one after another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepCost {
    pub(super) by_class: [Seconds; OperatorClass::ALL.len()],
    pub(super) compute_bound: Seconds,
    pub(super) memory_bound: Seconds,
    /// Launches and other times of operators that neither limit explains.
    pub(super) launches: Seconds,
    /// Time of steps with prompt tokens.
    pub(super) prompt_time: Seconds,
    pub(super) flops: Flops,
    pub(super) bytes: Bytes,
}

impl StepCost {
    /// Time of the step.
    pub fn total(&self) -> Seconds {
        self.by_class.iter().copied().sum()
    }

    /// Time spent in one class of operators.
    pub const fn time(&self, class: OperatorClass) -> Seconds {
        self.by_class[class as usize]
    }

    /// Time spent in operators that this limits.
    pub fn bound_time(&self, bound: Bound) -> Seconds {
        match bound {
            Bound::Compute => self.compute_bound,
            Bound::Memory => self.memory_bound,
            Bound::Interconnect => self.time(OperatorClass::Collective),
            Bound::Overhead => self.time(OperatorClass::Overhead) + self.launches,
        }
    }

    /// What limits the step: that which the largest share of its time is bound by.
    pub fn bound(&self) -> Bound {
        let mut largest = Bound::Memory;
        for bound in [Bound::Compute, Bound::Interconnect, Bound::Overhead] {
            if self.bound_time(bound) > self.bound_time(largest) {
                largest = bound;
            }
        }
        largest
    }

    /// Time of the steps among these that process prompt tokens.
    pub const fn prompt_time(&self) -> Seconds {
        self.prompt_time
    }

    /// Operations done by each device.
    pub const fn flops(&self) -> Flops {
        self.flops
    }

    /// Bytes moved between each device's memory and chip.
    pub const fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Adds an operator: the slower of its two times bounds it.
    #[inline]
    pub(super) fn add(&mut self, class: OperatorClass, times: OperatorTimes) {
        self.add_all(class, std::iter::once(times));
    }
}

/// What pricing adds operators up to.
pub(super) trait Sum: Default {
    /// Adds operators of one class.
    fn add_all(&mut self, class: OperatorClass, operators: impl Iterator<Item = OperatorTimes>);
    /// Adds time that is neither arithmetic nor memory traffic.
    fn add_time(&mut self, class: OperatorClass, time: Seconds);
}

/// Nothing but the time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Total(pub(super) Seconds);

impl Sum for Total {
    #[inline]
    fn add_all(&mut self, _: OperatorClass, operators: impl Iterator<Item = OperatorTimes>) {
        self.0 += operators.map(|times| times.total()).sum::<Seconds>();
    }

    #[inline]
    fn add_time(&mut self, _: OperatorClass, time: Seconds) {
        self.0 += time;
    }
}

impl Sum for StepCost {
    /// The sums stay in registers until the end, which is what makes pricing fast.
    #[inline]
    fn add_all(&mut self, class: OperatorClass, operators: impl Iterator<Item = OperatorTimes>) {
        let (mut compute_bound, mut memory_bound, mut launches) = (Seconds::ZERO, Seconds::ZERO, Seconds::ZERO);
        let mut work = Work::default();
        for times in operators {
            work = work + times.work;
            launches += times.fixed;
            if times.compute > times.memory {
                compute_bound += times.overlapped;
            } else {
                memory_bound += times.overlapped;
            }
        }
        self.by_class[class as usize] += compute_bound + memory_bound + launches;
        self.compute_bound += compute_bound;
        self.memory_bound += memory_bound;
        self.launches += launches;
        self.flops += work.flops;
        self.bytes += work.bytes;
    }

    #[inline]
    fn add_time(&mut self, class: OperatorClass, time: Seconds) {
        self.by_class[class as usize] += time;
    }
}

/// Work of an operator, how long each limit alone would take for it, and how long it takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OperatorTimes {
    pub(super) work: Work,
    pub(super) compute: Seconds,
    pub(super) memory: Seconds,
    /// Both limits together, as far as they overlap.
    pub(super) overlapped: Seconds,
    /// Launches and the like, on top.
    pub(super) fixed: Seconds,
}

impl OperatorTimes {
    pub(super) fn total(&self) -> Seconds {
        self.overlapped + self.fixed
    }

    /// What decides, launches included.
    pub(super) fn bound(&self) -> Bound {
        if self.fixed > self.overlapped {
            Bound::Overhead
        } else if self.compute > self.memory {
            Bound::Compute
        } else {
            Bound::Memory
        }
    }
}

impl std::ops::Add for StepCost {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        let mut sum = self;
        for (own, others) in sum.by_class.iter_mut().zip(other.by_class) {
            *own += others;
        }
        sum.compute_bound += other.compute_bound;
        sum.memory_bound += other.memory_bound;
        sum.launches += other.launches;
        sum.prompt_time += other.prompt_time;
        sum.flops += other.flops;
        sum.bytes += other.bytes;
        sum
    }
}

impl std::ops::AddAssign for StepCost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::ops::Mul<f64> for StepCost {
    type Output = Self;
    fn mul(self, times: f64) -> Self {
        Self {
            by_class: self.by_class.map(|time| time * times),
            compute_bound: self.compute_bound * times,
            memory_bound: self.memory_bound * times,
            launches: self.launches * times,
            prompt_time: self.prompt_time * times,
            flops: self.flops * times,
            bytes: self.bytes * times,
        }
    }
}
