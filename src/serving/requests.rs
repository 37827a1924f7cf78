//! Requests drawn from a scene, and the gaps between tokens in it.

use super::draw::{self, Drawn, Place, Waits};
use super::metrics::Percentiles;
use super::operating::{FirstToken, gathering};
use super::scene::{NODES, Node, PROMPTS, Scene};
use crate::engine::PromptPolicy;
use crate::units::Seconds;

/// What requests are drawn from.
pub(super) struct Drawing<'a> {
    pub(super) scene: &'a Scene,
    /// Prompt over the mean prompt, and output length, of each request.
    pub(super) lengths: &'a [(f64, f64)],
    pub(super) front_end: Seconds,
    pub(super) waits: &'a Waits,
}

impl Drawing<'_> {
    /// Requests that stand for all.
    pub(super) fn requests(&self) -> Vec<Drawn> {
        let starts = self.scene.nodes.each_ref().map(|node| Starts::new(self.scene, node));
        let places = draw::places().iter().zip(self.lengths);
        places.map(|(place, lengths)| self.request(place, *lengths, &starts)).collect()
    }

    fn request(&self, place: &Place, lengths: (f64, f64), starts: &[Starts; NODES]) -> Drawn {
        let chosen = ((place.whom * NODES as f64) as usize).min(NODES - 1);
        let node = &self.scene.nodes[chosen];
        let start = starts[chosen].start(self.scene, node, place, lengths.0);
        let overflow = self.scene.overflow;
        let waits = place.before < overflow.share;
        let before = if waits { overflow.wait.as_seconds() * (overflow.share / place.before).ln() } else { 0.0 };
        let ttft = self.front_end.as_seconds() + self.waits.at(place.wait) + before + start;
        let steps = lengths.1 - 1.0;
        let tpot = if steps > 0.0 { self.scene.pace(node, steps, place.pace) } else { 0.0 };
        Drawn { weights: place.weights, ttft, tpot, e2e: ttft + steps * tpot }
    }

    /// Percentiles of single gaps: those with many sequences count for many tokens.
    pub(super) fn gaps(&self, mean: Seconds) -> Percentiles {
        const CELLS: usize = 1 + (PROMPTS - 1) * LENGTHS;
        /// Share of the gaps that is not looked at.
        const RARE: f64 = 1e-6;
        let lengths = self.prompt_lengths();
        let mut samples = [(0.0, 0.0); NODES * CELLS];
        let mut count = 0;
        let mut add = |gap: f64, weight: f64| {
            samples[count] = (gap, weight);
            count += 1;
        };
        for Node { line, prompts, unit } in &self.scene.nodes {
            add(line.pure, line.sequences * prompts[0]);
            for (before, share) in prompts[1..].iter().enumerate().filter(|(_, share)| **share > RARE) {
                let (prompts, weight) = ((before + 1) as f64 * unit, line.sequences * share / LENGTHS as f64);
                let added = line.added(prompts);
                // The sum of several varies less than each. A chunk is always about as long.
                let varied = if self.scene.room > 1.0 { 1.0 / prompts.max(1.0).sqrt() } else { 0.0 };
                lengths.iter().for_each(|length| add(line.pure + added * (1.0 + (length - 1.0) * varied), weight));
            }
        }
        draw::weighted(&mut samples[..count], mean, false)
    }

    /// A few lengths of prompts over their mean.
    fn prompt_lengths(&self) -> [f64; LENGTHS] {
        let mut sums = [(0.0, 0.0); LENGTHS];
        for (place, length) in draw::places().iter().zip(self.lengths) {
            let index = ((place.lengths.0 * LENGTHS as f64) as usize).min(LENGTHS - 1);
            sums[index].0 += length.0;
            sums[index].1 += 1.0;
        }
        sums.map(|(sum, count)| if count > 0.0 { sum / count } else { 1.0 })
    }
}

/// Lengths of prompts that are told apart in gaps.
const LENGTHS: usize = 4;

/// The steps of a node as a request finds them at a random moment.
struct Starts {
    /// Share of the time in steps with so many prompts, added up.
    passed: [f64; PROMPTS],
    /// Seconds until the engine takes new prompts.
    gathering: f64,
}

impl Starts {
    fn new(scene: &Scene, node: &Node) -> Self {
        let mut passed = [0.0; PROMPTS];
        let mut sum = 0.0;
        for (prompts, passed) in passed.iter_mut().enumerate() {
            sum += node.prompts[prompts] * node.time(prompts);
            *passed = sum;
        }
        if sum > 0.0 {
            passed.iter_mut().for_each(|share| *share /= sum);
        }
        Self { passed, gathering: scene.gathering(node) }
    }

    /// Seconds from having a place to the first token, for a prompt of `length` times the mean.
    fn start(&self, scene: &Scene, node: &Node, place: &Place, length: f64) -> f64 {
        let line = &node.line;
        if let Some(backlog) = &scene.backlog {
            let waits = (place.before, place.when, place.together);
            return self.gathering + backlog.sample(line, waits, length, scene.arriving.scv);
        }
        let (running, found) =
            if scene.meets_steps && line.pure > 0.0 { self.running(scene, node, place.when) } else { (0.0, line.pure) };
        let beside = if scene.policy == PromptPolicy::First { 0.0 } else { line.pure };
        if scene.room < 1.0 {
            return self.gathering + running + (beside + line.first) * (length / scene.room).max(1.0);
        }
        // Those that come in the same step are processed together.
        let others = poisson_quantile(scene.rate * found, place.together).min(scene.room - 1.0);
        self.gathering + running + beside + line.first * length + line.more * others
    }

    /// The rest of the step that runs, and how long it is in all.
    fn running(&self, scene: &Scene, node: &Node, when: f64) -> (f64, f64) {
        let prompts = self.passed.iter().filter(|passed| when > **passed).count().min(PROMPTS - 1);
        let before = if prompts > 0 { self.passed[prompts - 1] } else { 0.0 };
        let width = self.passed[prompts] - before;
        let part = if width > 0.0 { (when - before) / width } else { 0.5 };
        if scene.policy != PromptPolicy::First {
            let step = node.time(prompts);
            return (step * part, step);
        }
        // A gap with prompts is a step of answers and one or more of prompts: about as many in each.
        let (pure, added) = (node.line.pure, node.line.added(prompts as f64));
        let answers = pure / (pure + added);
        if part < answers {
            return (pure * (part / answers), pure);
        }
        let steps = (1.0 + (prompts as f64 - 1.0).max(0.0) * (scene.rate * node.line.first).min(1.0)).max(1.0);
        let step = added / steps;
        let within = ((part - answers) / (1.0 - answers) * steps).fract();
        (step * within, step)
    }
}

impl Scene {
    /// Mean time per token of a request of so many steps, at so many standard deviations.
    fn pace(&self, node: &Node, steps: f64, deviations: f64) -> f64 {
        let part = (steps * self.pace.per_step).max(1e-6);
        // What is left of the fluctuation of sequences in a mean over this time, and how much of it is known at the start.
        let (left, known) = if part <= 1.0 {
            (1.0 - part / 3.0, 1.0 - part / 2.0)
        } else {
            let whole = 1.0 / part;
            ((1.0 - whole / 3.0) * whole, whole / 2.0)
        };
        let (slope, stall) = (self.tpot_slope, self.stall / steps);
        let variance = self.variance
            * (slope * slope * (left - known * known) + stall * stall * part + slope * stall * part)
            + stall * stall * self.pace.clusters * part.min(1.0);
        let mean = self.tpot + slope * known * (node.line.sequences - self.sequences);
        gamma(self.pace.floor, mean, variance.max(0.0), deviations).max(self.pace.least).min(self.pace.most)
    }

    /// Time until the engine takes new prompts.
    fn gathering(&self, node: &Node) -> f64 {
        let (pure, mean) = (Seconds::from_seconds(node.line.pure), Seconds::from_seconds(node.mean_time()));
        if pure > Seconds::ZERO { gathering(self.wait_steps, pure, mean).as_seconds() } else { 0.0 }
    }

    /// Means of the parts of the first token.
    pub(super) fn first_token(&self) -> FirstToken {
        let mut first = FirstToken { prompts_before: self.overflow.mean(), ..FirstToken::default() };
        if let Some(backlog) = &self.backlog {
            for node in &self.nodes {
                first.gathering += Seconds::from_seconds(self.gathering(node) / NODES as f64);
            }
            first.running_step = Seconds::from_seconds(backlog.running);
            first.own = Seconds::from_seconds(backlog.own);
            first.prompts_before =
                Seconds::from_seconds((backlog.mean - backlog.running - backlog.own) * self.arriving.scv);
            return first;
        }
        for node in &self.nodes {
            let (running, own) = self.mean_start(node);
            first.gathering += Seconds::from_seconds(self.gathering(node) / NODES as f64);
            first.running_step += Seconds::from_seconds(running / NODES as f64);
            first.own += Seconds::from_seconds(own / NODES as f64);
        }
        first
    }

    fn mean_start(&self, node: &Node) -> (f64, f64) {
        let line = &node.line;
        let (mut time, mut square) = (0.0, 0.0);
        for (prompts, share) in node.prompts.iter().enumerate() {
            let step = node.time(prompts);
            if self.policy == PromptPolicy::First {
                let added = step - line.pure;
                let steps = (1.0 + (prompts as f64 - 1.0).max(0.0) * (self.rate * line.first).min(1.0)).max(1.0);
                square += share * (line.pure * line.pure + added * added / steps);
            } else {
                square += share * step * step;
            }
            time += share * step;
        }
        let seen = if time > 0.0 && self.meets_steps { square / time } else { 0.0 };
        let beside = if self.policy == PromptPolicy::First { 0.0 } else { line.pure };
        if self.room < 1.0 {
            return (seen / 2.0, (beside + line.first) / self.room);
        }
        let others = (self.rate * seen).min(self.room - 1.0);
        (seen / 2.0, beside + line.first + line.more * others)
    }
}

/// A value of this mean and variance above a floor, where so many standard deviations are in a normal distribution: a gamma distribution (E. B. Wilson and
/// M. M. Hilferty, PNAS 17 (1931) 684).
fn gamma(floor: f64, mean: f64, variance: f64, deviations: f64) -> f64 {
    let above = (mean - floor).max(1e-12);
    let root = variance.sqrt() / (3.0 * above);
    let root = 1.0 - root * (root - deviations);
    if root > 0.0 { floor + above * root * root * root } else { floor }
}

/// The count that a share of a Poisson distribution does not exceed, with the part of the step that the share has passed.
pub(super) fn poisson_quantile(mean: f64, share: f64) -> f64 {
    // As e^-x is more than 1 - x.
    if share <= 1.0 - mean {
        return 0.0;
    }
    let mut probability = (-mean).exp();
    let mut passed = probability;
    let mut count = 0.0;
    while share > passed && count < 200.0 {
        count += 1.0;
        probability *= mean / count;
        passed += probability;
    }
    count
}
