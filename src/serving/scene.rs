//! What a request finds: how many others are being answered, how long steps take with and without prompts, how much it fluctuates.

use super::backlog::Backlog;
use super::mix::StepMix;
use super::open_mean::{OpenMean, Spread};
use super::operating::{MANY, Operating, Overflow};
use super::pattern::prompts_per_step;
use super::replicas::Arriving;
use super::rules::ServingRules;
use crate::engine::PromptPolicy;
use crate::units::Seconds;

/// The time of steps with so many sequences, as a line in the prompts that they carry.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct StepLine {
    /// Sequences that are being answered.
    pub(super) sequences: f64,
    /// A step without prompts.
    pub(super) pure: f64,
    /// What the least part of a prompt adds.
    pub(super) least: f64,
    /// What a first prompt adds (of the part of one that a step has room for, where that is less).
    pub(super) first: f64,
    /// What every further prompt adds.
    pub(super) more: f64,
}

impl StepLine {
    pub(super) fn new(mix: &StepMix<'_>, rules: &ServingRules, sequences: f64) -> Self {
        let room = prompts_per_step(mix, rules, sequences);
        let pure = if sequences > 0.0 { mix.step(0.0, sequences).as_seconds() } else { 0.0 };
        let alone = rules.prompts == PromptPolicy::First;
        let with = |prompts: f64| match alone {
            true => mix.step(prompts, 0.0).as_seconds(),
            false => mix.step(prompts, sequences).as_seconds() - pure,
        };
        let first = with(room.min(1.0));
        let part = with(PART * room.min(1.0));
        let least = (part - (first - part) * (PART / (1.0 - PART))).clamp(0.0, first.max(0.0));
        let several = room.min(SEVERAL);
        let more = if room > 1.0 { (with(several) - first) / (several - 1.0) } else { 0.0 };
        Self { sequences, pure, least, first, more }
    }

    /// What `prompts` add; steps of one where it has several.
    pub(super) fn added(&self, prompts: f64) -> f64 {
        if prompts <= 0.0 {
            return 0.0;
        }
        self.least + (self.first - self.least) * prompts.min(1.0) + self.more * (prompts - 1.0).max(0.0)
    }

    /// The time of a step for the answers that are written beside prompts.
    pub(super) fn pure_beside(&self, policy: PromptPolicy) -> f64 {
        if policy == PromptPolicy::First { 0.0 } else { self.pure }
    }

    pub(super) fn between(&self, other: &Self, part: f64) -> Self {
        let at = |own: f64, others: f64| own + (others - own) * part;
        Self {
            sequences: at(self.sequences, other.sequences),
            pure: at(self.pure, other.pure).max(0.0),
            least: at(self.least, other.least).max(0.0),
            first: at(self.first, other.first).max(0.0),
            more: at(self.more, other.more).max(0.0),
        }
    }
}

/// So many prompts in a step, or between two steps of answers, where a prompt's time brings further ones.
const SEVERAL: f64 = 4.0;
/// The part of a prompt that tells what any part adds.
const PART: f64 = 0.25;
/// Numbers of prompts that are told apart.
pub(super) const PROMPTS: usize = 16;
/// How many situations stand for all.
pub(super) const NODES: usize = 8;

/// One of the situations that stand for all, each for the same share of time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Node {
    pub(super) line: StepLine,
    /// Share of the steps (of the gaps, where prompts have steps of their own) with so many prompts.
    pub(super) prompts: [f64; PROMPTS],
    /// Prompts (or full steps of one) that they differ by.
    pub(super) unit: f64,
}

/// The situations that requests find.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) nodes: [Node; NODES],
    pub(super) policy: PromptPolicy,
    /// Prompts that a step has room for.
    pub(super) room: f64,
    /// Prompts per second of others.
    pub(super) rate: f64,
    /// Whether a request may come while a step runs.
    pub(super) meets_steps: bool,
    pub(super) overflow: Overflow,
    /// Prompts that wait where steps have room for few.
    pub(super) backlog: Option<Backlog>,
    /// By how much times between arrivals vary.
    pub(super) arriving: Arriving,
    /// Steps of answers before the engine takes new prompts.
    pub(super) wait_steps: f64,
    /// Mean time per output token.
    pub(super) tpot: f64,
    /// By how much it grows with one more sequence.
    pub(super) tpot_slope: f64,
    /// What one prompt adds to the time of all others' answers.
    pub(super) stall: f64,
    /// Variance of the sequences.
    pub(super) variance: f64,
    /// Mean of the sequences.
    pub(super) sequences: f64,
    pub(super) pace: Pace,
}

/// Limits of the time per output token of single requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// One over the mean decode steps of a request.
    pub(super) per_step: f64,
    /// What the time per token fluctuates above.
    pub(super) floor: f64,
    /// Least time per output token.
    pub(super) least: f64,
    /// Most time per output token: all steps are full.
    pub(super) most: f64,
    /// Variance of the prompts that follow one in its cluster.
    pub(super) clusters: f64,
}

impl Pace {
    fn new(mix: &StepMix<'_>, tpot: f64, most: f64, own: f64) -> Self {
        let fastest = mix.step(0.0, 1.0).as_seconds();
        Self {
            per_step: 1.0 / mix.decode_steps,
            floor: (0.9 * fastest).min(tpot),
            least: fastest.min(tpot),
            most: most.max(tpot),
            clusters: own / ((1.0 - own).powi(3) * (1.0 - own * own)),
        }
    }
}

impl Scene {
    /// Requests that come at random.
    pub(super) fn open(
        mix: &StepMix<'_>,
        rules: &ServingRules,
        mean: &OpenMean,
        lengths: &[(f64, f64)],
        spread: Spread,
        arriving: Arriving,
    ) -> Self {
        let backlog = mean.backlog(mix, rules, lengths, spread);
        let overflow = match &backlog {
            Some(_) => Overflow::NONE,
            None => overflow_at(mix, rules, mean.sequences, mean.room, mean.rate).thinned(arriving),
        };
        // Who gets the last place finds one fewer.
        let others = rules.slots().0 as f64 - 1.0;
        let mut nodes = [Node::default(); NODES];
        let (low, high) = spread_lines(mix, rules, mean);
        let idle = StepLine::new(mix, rules, 0.0);
        let numbers = negative_binomial_nodes(mean.sequences, mean.variance);
        for (node, number) in nodes.iter_mut().zip(numbers) {
            let number = number.min(others);
            let width = high.sequences - low.sequences;
            let mut line = low.between(&high, (number.max(1.0) - low.sequences) / width);
            // Nobody in part of the time: a prompt is alone in its step then.
            if number < 1.0 {
                line = idle.between(&line, number);
            }
            line.sequences = number;
            *node = Node::new(line, rules.prompts, mean.room, mean.rate, mean.stall, true);
            if let Some(backlog) = &backlog {
                node.steps_as(backlog, rules.prompts);
            }
        }
        Self {
            nodes,
            policy: rules.prompts,
            room: mean.room,
            rate: mean.rate,
            meets_steps: true,
            overflow,
            backlog,
            arriving,
            wait_steps: rules.prompt_wait_steps,
            tpot: mean.tpot,
            tpot_slope: mean.slope / (1.0 - (mean.rate * mean.stall).min(0.99)),
            stall: mean.stall,
            variance: mean.variance,
            sequences: mean.sequences,
            pace: Pace::new(mix, mean.tpot, mean.most, (mean.rate * mean.stall).min(0.99)),
        }
    }

    /// A fixed number of requests, of which `spread` (the variation of their lengths) tells how evenly they end.
    pub(super) fn closed(
        mix: &StepMix<'_>,
        rules: &ServingRules,
        operating: &Operating,
        meets_steps: bool,
        spread: f64,
    ) -> Self {
        let others = 1.0 - 1.0 / operating.placed.max(1.0);
        let rate = operating.rate * others;
        let sequences = operating.pattern.sequences * others;
        let line = StepLine::new(mix, rules, sequences);
        let room = operating.pattern.room;
        let stall = if room < 1.0 {
            line.first / room
        } else {
            line.added(operating.pattern.prompts.max(1.0)) / operating.pattern.prompts.max(1.0)
        };
        let node = Node::new(line, rules.prompts, room, rate, stall, false);
        Self {
            nodes: [node; NODES],
            policy: rules.prompts,
            room,
            rate,
            meets_steps,
            overflow: operating.overflow,
            backlog: None,
            arriving: Arriving::POISSON,
            wait_steps: rules.prompt_wait_steps,
            tpot: operating.pattern.mean().as_seconds(),
            tpot_slope: 0.0,
            stall,
            variance: sequences * spread,
            sequences,
            pace: Pace::new(mix, operating.pattern.mean().as_seconds(), f64::INFINITY, 0.0),
        }
    }
}

/// Step lines at a few and at many sequences, for lines in between.
fn spread_lines(mix: &StepMix<'_>, rules: &ServingRules, mean: &OpenMean) -> (StepLine, StepLine) {
    let deviation = mean.variance.sqrt();
    let low = (mean.sequences - deviation).max(1.0);
    let high = (mean.sequences + deviation).max(low + 1.0);
    (StepLine::new(mix, rules, low), StepLine::new(mix, rules, high))
}

impl Node {
    fn new(line: StepLine, policy: PromptPolicy, room: f64, rate: f64, stall: f64, clustered: bool) -> Self {
        let own = if clustered { (rate * stall).min(0.98) } else { 0.0 };
        let still = if clustered { 1.0 - own } else { (1.0 - rate * stall).max(0.02) };
        let mut prompts = [0.0; PROMPTS];
        if line.pure <= 0.0 {
            prompts[0] = 1.0;
        } else if policy == PromptPolicy::First {
            // Prompts that come in a step of answers, and those that come while these are processed, and so on.
            generalized_poisson(rate * line.pure, own, &mut prompts);
        } else if room < 1.0 {
            // Chunk after chunk: a step has one or none.
            let busy = (rate * line.pure / (still * room)).min(1.0);
            (prompts[0], prompts[1]) = (1.0 - busy, busy);
        } else {
            negative_binomial(rate * line.pure / still, own, &mut prompts);
        }
        Self { line, prompts, unit: 1.0 }
    }

    /// With steps as full as the backlog makes them; prompts that have steps of their own are in the gaps already.
    fn steps_as(&mut self, backlog: &Backlog, policy: PromptPolicy) {
        if policy != PromptPolicy::First && self.line.pure > 0.0 {
            (self.prompts, self.unit) = (backlog.steps, backlog.amount(1.0));
        }
    }

    /// The mean step, or gap.
    pub(super) fn mean_time(&self) -> f64 {
        self.prompts.iter().enumerate().map(|(prompts, share)| share * self.time(prompts)).sum()
    }

    /// A step, or gap, with so many prompts.
    pub(super) fn time(&self, prompts: usize) -> f64 {
        self.line.pure + self.line.added(prompts as f64 * self.unit)
    }
}

/// Counts with this mean and a variance of `mean / (1 - own^2)`: arrivals in a step that is longer for those in the step before.
fn negative_binomial(mean: f64, own: f64, into: &mut [f64; PROMPTS]) {
    let clustered = own > 1e-3;
    let shape = if clustered { mean * (1.0 - own * own) / (own * own) } else { 0.0 };
    let odds = if clustered { mean / (mean + shape) } else { mean };
    let mut probability = if clustered { (shape * (-odds).ln_1p()).exp() } else { (-mean).exp() };
    for (count, out) in into.iter_mut().enumerate() {
        *out = probability;
        let count = count as f64;
        probability *= odds * if clustered { shape + count } else { 1.0 } / (count + 1.0);
    }
    rest_to_last(into);
}

/// Clusters of a Poisson number of first ones, each of which brings `own` others in the mean (Consul and Jain, Technometrics 15 (1973) 791).
fn generalized_poisson(first: f64, own: f64, into: &mut [f64; PROMPTS]) {
    let mut factorial = 1.0;
    for (count, out) in into.iter_mut().enumerate() {
        let count = count as f64;
        factorial *= count.max(1.0);
        let total = first + own * count;
        *out = if count == 0.0 { (-first).exp() } else { first * total.powf(count - 1.0) * (-total).exp() / factorial };
    }
    rest_to_last(into);
}

fn rest_to_last(into: &mut [f64; PROMPTS]) {
    let sum: f64 = into.iter().sum();
    into[PROMPTS - 1] += (1.0 - sum).max(0.0);
}

/// Numbers that stand for a negative binomial distribution, each for the same share.
///
/// Many are walked in strides: their distribution is smooth.
fn negative_binomial_nodes(mean: f64, variance: f64) -> [f64; NODES] {
    /// Weights that are looked at, at most.
    const WEIGHTS: usize = 192;
    let mut nodes = [0.0; NODES];
    if mean <= 0.0 {
        return nodes;
    }
    let excess = (variance - mean).max(1e-6 * mean);
    let shape = mean * mean / excess;
    let odds = mean / (mean + shape);
    let deviation = variance.sqrt();
    let start = (mean - 6.0 * deviation).floor().max(0.0);
    let end = (mean + 9.0 * deviation + 10.0).ceil();
    let stride = ((end - start + 1.0) / WEIGHTS as f64).ceil().max(1.0);
    let mut weights = [0.0; WEIGHTS];
    let (mut weight, mut total, mut count) = (1.0, 0.0, 0);
    while count < WEIGHTS && start + stride * count as f64 <= end && f64::is_finite(weight) {
        weights[count] = weight;
        total += weight;
        // The ratio of neighbours, to the power of the stride, at the middle between them.
        let middle = start + stride * count as f64 + (stride - 1.0) / 2.0;
        let ratio = odds * (shape + middle) / (middle + 1.0);
        weight *= if stride > 1.0 { ratio.powf(stride) } else { ratio };
        count += 1;
    }
    let share = total / NODES as f64;
    let (mut node, mut filled, mut sum) = (0, 0.0, 0.0);
    for (index, weight) in weights[..count].iter().enumerate() {
        let number = start + stride * index as f64;
        let mut left = *weight;
        while node < NODES && filled + left >= share {
            let part = share - filled;
            nodes[node] = (sum + part * number) / share;
            left -= part;
            (filled, sum) = (0.0, 0.0);
            node += 1;
        }
        filled += left;
        sum += left * number;
    }
    let last = if filled > 0.0 { sum / filled } else { end };
    nodes[node..].fill(last);
    nodes
}

/// Overflow beside so many sequences, where steps have room for many prompts.
fn overflow_at(mix: &StepMix<'_>, rules: &ServingRules, sequences: f64, room: f64, rate: f64) -> Overflow {
    // With a single place there is never another prompt.
    if rules.slots().0 == 1 {
        return Overflow::NONE;
    }
    let beside = if rules.prompts == PromptPolicy::First { 0.0 } else { sequences };
    Overflow::new(
        if room < MANY { mix.step(room, beside) } else { Seconds::ZERO },
        room,
        rate,
        rules.prompts == PromptPolicy::Chunked,
    )
}
