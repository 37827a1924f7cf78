//! Prompts that wait for steps which have room for a few: how many wait when a step starts, and how long a prompt takes to its first token.

use super::requests::poisson_quantile;
use super::scene::{PROMPTS, StepLine};
use crate::engine::PromptPolicy;
use crate::queueing::{BandRow, CompoundPoisson, decay_of, stationary};

/// The prompts in front of an engine whose steps have room for some, as a Markov chain from step to step.
///
/// # Formula
/// With `u` waiting when a step starts, `w = min(u, R)` are processed in `tau(w)`; then `u - w` wait, and what comes in `tau(w)`: a compound Poisson number (H. Panjer, ASTIN
/// Bulletin 12 (1981) 22). Prompts are counted in levels, parts of a prompt where steps have room for few, as they are cut where the room ends. The chain is
/// solved without subtractions (W. K. Grassmann, M. I. Taksar and D. P. Heyman, Operations Research 33 (1985) 1107). Mean time to first token by Little's law: the prompts that
/// are not finished, over their rate.
#[derive(Clone, Debug)]
pub(super) struct Backlog {
    /// Levels that a step has room for.
    room: usize,
    /// Levels per prompt.
    levels: f64,
    /// Levels of a prompt, or of the part that a step has room for where that is less.
    full: f64,
    policy: PromptPolicy,
    /// Steps that are taken as one.
    at_once: f64,
    /// Whether prompts are not cut.
    whole: bool,
    /// Seconds that full steps take longer for the answers that are written beside them.
    growth: f64,
    /// Prompts per second.
    rate: f64,
    /// Share of the time in which as many levels or more wait in front of the step that runs.
    at_least: Vec<f64>,
    /// Share of the steps that process so many levels.
    pub(super) steps: [f64; PROMPTS],
    /// Mean seconds from arrival to the first token.
    pub(super) mean: f64,
    /// Of these, the rest of the step that runs.
    pub(super) running: f64,
    /// And the steps that process the prompt.
    pub(super) own: f64,
}

/// What comes to such an engine.
pub(super) struct Coming<'a> {
    /// Prompts per second.
    pub(super) rate: f64,
    /// Lengths of prompts over their mean, evenly drawn.
    pub(super) lengths: &'a [(f64, f64)],
    /// Variance of the lengths over their mean square.
    pub(super) spread: f64,
    /// Share of the time in which no answers are written.
    pub(super) idle: f64,
    /// Steps per prompt.
    pub(super) steps: f64,
    /// Seconds that full steps take longer for the answers that are written beside them.
    pub(super) growth: f64,
    /// Prompts that may wait: others have no place yet.
    pub(super) places: f64,
}

/// Most levels that wait, or most prompts where these have many levels.
const MOST: usize = 480;
const FEW: usize = 20;
/// Levels of a prompt, if there are not so many that wait.
const LEVELS: f64 = 4.0;
const MOST_LEVELS: usize = 12;
/// How often short prompts are told apart.
const ROUNDS: usize = 4;
/// Lengths that are looked at.
const ENOUGH: usize = 128;
/// What a ratio of levels may be off to have more or fewer of them.
const COARSE: f64 = 0.05;
const FINE: f64 = 0.02;
/// Steps of a prompt that are told apart.
const LONGEST: f64 = 32.0;
/// Logarithm of what is left out.
const REST: f64 = 10.0;

impl Backlog {
    /// Steps with room for more prompts than this are not told apart from endless ones.
    pub(super) const LARGEST_ROOM: f64 = (PROMPTS - 1) as f64;

    /// `line` is that of steps beside answers, `alone` that of steps with prompts only.
    pub(super) fn new(line: &StepLine, alone: &StepLine, policy: PromptPolicy, room: f64, coming: &Coming<'_>) -> Self {
        let whole = policy == PromptPolicy::First && room >= 1.0;
        // Of very long prompts several steps are taken as one.
        let at_once = (1.0 / (LONGEST * room)).ceil().max(1.0);
        let room = if whole { room.floor() } else { room * at_once };
        let rate = coming.rate.max(f64::MIN_POSITIVE.sqrt());
        let full = at_once * (line.pure_beside(policy) + line.added(room.max(1.0)));
        let load = (rate * full / room).clamp(1e-6, 0.9995);
        let tail = REST * (1.0 + coming.spread) / decay_of(load) + 3.0;
        let (levels, per_step) = if whole { (1, room as usize) } else { levels(room, MOST as f64 / (tail + room)) };
        let mut backlog = Self {
            room: per_step,
            levels: levels as f64,
            full: room.min(1.0) * levels as f64,
            policy,
            at_once,
            whole,
            growth: coming.growth,
            rate,
            at_least: Vec::new(),
            steps: [0.0; PROMPTS],
            mean: 0.0,
            running: 0.0,
            own: 0.0,
        };
        let waiting = (tail * backlog.levels + per_step as f64).min(coming.places * backlog.levels);
        let states = (waiting.ceil() as usize + 1).min(MOST.max(FEW * levels));
        let sizes = sizes(if backlog.are_same(coming) { &[(1.0, 0.0)] } else { coming.lengths }, backlog.levels);
        let mixed = alone.between(line, 1.0 - coming.idle);
        let time = |level: usize| if level == 0 { line.pure } else { backlog.time(&mixed, level as f64) };
        let times: Vec<f64> = (0..=per_step).map(time).collect();
        let arrivals = Arrivals::new(rate, &times, sizes, backlog.levels, states);
        let awake = backlog.awake(coming, &times);
        let row = |waiting| arrivals.row(waiting, per_step, states, awake);
        let chain = stationary((0..states).map(row).collect());
        backlog.summarize(&mixed, &chain, &times, &arrivals, coming, awake);
        backlog
    }

    /// Seconds of a step that processes so many levels.
    fn time(&self, line: &StepLine, levels: f64) -> f64 {
        if levels <= 0.0 {
            return line.pure;
        }
        let more = self.growth * levels / self.room as f64;
        self.at_once * (line.pure_beside(self.policy) + line.added(self.amount(levels)) + more)
    }

    /// In prompts, or in the parts that steps have room for.
    pub(super) fn amount(&self, levels: f64) -> f64 {
        levels / self.full
    }

    /// Whether all prompts have as many levels.
    fn are_same(&self, coming: &Coming<'_>) -> bool {
        self.whole || coming.spread <= 0.0
    }

    /// The probability that answers are being written when no prompt waits.
    fn awake(&self, coming: &Coming<'_>, times: &[f64]) -> f64 {
        if times[0] <= 0.0 {
            return 0.0;
        }
        // Episodes without requests for each step, and steps without prompts.
        let prompts = (self.rate * times[self.room] * self.levels / self.room as f64).min(1.0);
        let episodes = coming.idle * (1.0 - prompts) / coming.steps;
        let without = (1.0 - 1.0 / coming.steps).max((-self.rate * times[0]).exp());
        1.0 - (episodes / without).min(1.0)
    }

    fn summarize(
        &mut self,
        line: &StepLine,
        chain: &[f64],
        times: &[f64],
        arrivals: &Arrivals,
        coming: &Coming<'_>,
        awake: f64,
    ) {
        let (rate, room) = (self.rate, self.room);
        let load = (rate * times[room] * self.levels / room as f64).min(1.0);
        let same = self.are_same(coming);
        // Prompts of one length end where others begin. Of different ones a long backlog is a long prompt where there is little load, and several, the first of which
        // has half of it done in the mean, where there is much.
        let unfinished = |left: usize| {
            let prompts = left as f64 / self.levels;
            if prompts <= 1.0 || same {
                return prompts.ceil();
            }
            1.0 + load.cbrt() * (prompts - 1.0 + (1.0 - coming.spread).max(0.0) / 2.0)
        };
        let alone = |size: usize| times[size.min(room)];
        let (mut time, mut there, mut rest) = (0.0, 0.0, 0.0);
        self.at_least = vec![0.0; chain.len() + 1];
        for (waiting, share) in chain.iter().enumerate() {
            let level = waiting.min(room);
            let (step, left) = (times[level], waiting - level);
            let (share, idle) = if waiting == 0 { (share * awake, share * (1.0 - awake)) } else { (*share, 0.0) };
            self.at_least[waiting] = share * step + idle / rate;
            self.steps[level] += share;
            time += self.at_least[waiting];
            rest += share * step * step / 2.0;
            let (before, during) = (unfinished(left), &arrivals.during[level]);
            let next = during.sums.iter().zip(&during.numbers).enumerate();
            there += share
                * next.map(|(more, (count, prompts))| (before * count + prompts) * alone(left + more)).sum::<f64>();
            there += idle * arrivals.sizes.iter().enumerate().map(|(size, share)| share * alone(size)).sum::<f64>();
        }
        // A step that a prompt starts, as there was nobody, is not a gap between the tokens of anybody.
        let started = chain[0] * (1.0 - awake);
        for (size, share) in arrivals.sizes.iter().enumerate() {
            let steps = &mut self.steps[size.min(room)];
            *steps = (*steps - started * share).max(0.0);
        }
        self.steps[1..].iter_mut().for_each(|share| *share *= self.at_once);
        let steps: f64 = self.steps.iter().sum();
        if steps > 0.0 {
            self.steps.iter_mut().for_each(|share| *share /= steps);
        }
        for waiting in (0..chain.len()).rev() {
            self.at_least[waiting] = self.at_least[waiting] / time + self.at_least[waiting + 1];
        }
        self.running = rest / time;
        self.mean = (there / rate + rest) / time;
        let own = |size: f64, joined: f64| {
            let full = (size / room as f64 - 1e-9).floor().max(0.0);
            full * times[room] + self.time(line, (size - full * room as f64 + joined).min(room as f64))
        };
        let counted = arrivals.sizes.iter().enumerate().map(|(size, share)| share * own(size as f64, 0.0)).sum::<f64>();
        let lengths = || coming.lengths.iter().step_by(coming.lengths.len().div_ceil(ENOUGH));
        let count = lengths().count() as f64;
        let levels = self.levels * count / lengths().map(|length| length.0).sum::<f64>();
        let evenly = |joined: f64| lengths().map(|length| own(length.0 * levels, joined)).sum::<f64>() / count;
        // What rounding has done to single prompts.
        let rounding = if self.whole { 0.0 } else { evenly(0.0) - counted };
        let own = evenly(rate * self.running * self.levels);
        self.mean = (self.mean + rounding).max(self.running);
        self.own = own.min(self.mean - self.running);
    }

    /// Seconds to the first token of a prompt of `length` mean ones, which comes when a share `passed` of the step is over, finds `longer` of the backlogs longer, and
    /// `together` of the numbers that came before it in the step smaller. Times between arrivals have the squared coefficient of variation `scv`.
    pub(super) fn sample(
        &self,
        line: &StepLine,
        (longer, passed, together): (f64, f64, f64),
        length: f64,
        scv: f64,
    ) -> f64 {
        // Mostly nothing waits.
        let waiting = match self.at_least[1] < longer {
            true => 0,
            false => self.at_least.partition_point(|share| *share >= longer) - 1,
        };
        let room = self.room as f64;
        let level = (waiting as f64).min(room);
        let step = self.time(line, level);
        // Of those that come in this step, a part comes before it, and the others join it as long as there is room.
        let others = poisson_quantile(self.rate * step, together);
        let others = if scv == 1.0 { others } else { spread_by(self.rate * step, others, scv) };
        let before = if others > 0.0 { (others * passed).round() } else { 0.0 };
        // Whole prompts take one place each, whatever their lengths.
        let own = if self.whole { 1.0 } else { length };
        let total = (waiting as f64 - level) + self.levels * (before + own);
        let rest = step * (1.0 - passed);
        if total <= room {
            let last = (total + (others - before) * self.levels).min(room);
            return rest + self.time(line, last + self.levels * (length - own));
        }
        let further = (total / room - 1e-9).ceil() - 1.0;
        let last = (total - further * room + (others - before) * self.levels).min(room);
        rest + further * self.time(line, room) * scv + self.time(line, last + self.levels * (length - own))
    }
}

/// A number whose distance from the mean is that of a Poisson number, scaled to arrivals that are more regular, or less.
fn spread_by(mean: f64, number: f64, scv: f64) -> f64 {
    (mean + (number - mean) * scv.sqrt()).max(0.0)
}

/// Levels of a prompt, at most so many where that is enough, and of a step with room for so many prompts: whole numbers in about that ratio.
fn levels(room: f64, most: f64) -> (usize, usize) {
    let per_step = |levels: usize| (levels as f64 * room).round();
    let possible = |levels: &usize| (1.0..=(PROMPTS - 1) as f64).contains(&per_step(*levels));
    let cost = |levels: usize| {
        let exact = levels as f64 * room;
        let coarse = (1.0 - levels as f64 / LEVELS).max(0.0) * COARSE;
        let fine = (levels as f64 - most.max(1.0 / room)).max(0.0) + 0.05 * levels as f64;
        (exact / per_step(levels) - 1.0).abs() + coarse + fine * FINE
    };
    let finest = ((2.0 / room).ceil() as usize).max(MOST_LEVELS);
    let best = (1..=finest).filter(possible).min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
    let levels = best.unwrap_or(1);
    (levels, per_step(levels).max(1.0) as usize)
}

/// Shares of the numbers of levels that a prompt has, at least one, rounded up or down so that the mean is kept.
fn sizes(lengths: &[(f64, f64)], levels: f64) -> Vec<f64> {
    let evenly = || lengths.iter().step_by(lengths.len().div_ceil(ENOUGH)).map(|length| length.0);
    let count = evenly().count() as f64;
    let mut scale = levels * count / evenly().sum::<f64>();
    for _ in 0..ROUNDS {
        // Those that would have less than one take their level from the others.
        let (mut short, mut rest) = (0.0, 0.0);
        for length in evenly() {
            if length * scale < 1.0 {
                short += 1.0;
            } else {
                rest += length;
            }
        }
        if rest <= 0.0 {
            break;
        }
        scale = ((levels * count - short) / rest).max(0.0);
    }
    let longest = evenly().fold(0.0, f64::max) * scale;
    let mut shares = vec![0.0; longest as usize + 3];
    for length in evenly() {
        let levels = (length * scale).max(1.0);
        let below = levels as usize;
        let part = levels - below as f64;
        shares[below] += (1.0 - part) / count;
        shares[below + 1] += part / count;
    }
    shares
}

/// What comes in a step.
struct Arrivals {
    /// Shares of the levels of a prompt.
    sizes: Vec<f64>,
    /// Levels that come in a step, for each number of levels that it processes.
    during: Vec<CompoundPoisson>,
}

impl Arrivals {
    fn new(rate: f64, times: &[f64], sizes: Vec<f64>, levels: f64, states: usize) -> Self {
        let mean = rate * times.iter().fold(0.0, |longest: f64, time| longest.max(*time));
        let square: f64 = sizes.iter().enumerate().map(|(size, share)| share * (size * size) as f64).sum();
        let reach = (mean * levels + 5.0 * (mean * square).sqrt() + 2.0 * levels).ceil() as usize + sizes.len();
        let reach = reach.min(states);
        let during = times.iter().map(|time| CompoundPoisson::new(rate * time, &sizes, reach)).collect();
        Self { sizes, during }
    }

    /// From what waits when a step starts to what waits when the next one does.
    fn row(&self, waiting: usize, room: usize, states: usize, awake: f64) -> BandRow {
        let level = waiting.min(room);
        let first = waiting - level;
        let mut jumps = self.during[level].sums.clone();
        if waiting == 0 {
            jumps.iter_mut().for_each(|jump| *jump *= awake);
            let last = jumps.len() - 1;
            for (size, share) in self.sizes.iter().enumerate() {
                jumps[size.min(last)] += share * (1.0 - awake);
            }
        }
        let beyond: f64 = jumps.drain((states - first).min(jumps.len())..).sum();
        // The last state takes what lies beyond.
        if let Some(last) = jumps.last_mut() {
            *last += beyond;
        }
        BandRow { first, jumps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queueing::{BatchTime, LimitedBatchQueue, Md1, Mg1, Service};

    const FIXED: &[(f64, f64)] = &[(1.0, 1.0)];

    /// Prompts and no answers: a step takes `first`, and `more` for each further prompt.
    fn prompts_only(first: f64, more: f64, room: f64, rate: f64, lengths: &[(f64, f64)], spread: f64) -> Backlog {
        let line = StepLine { first, more, ..StepLine::default() };
        let coming = Coming { rate, lengths, spread, idle: 1.0, steps: 1.0, growth: 0.0, places: 1e9 };
        Backlog::new(&line, &line, PromptPolicy::Chunked, room, &coming)
    }

    fn close(found: f64, exact: f64, bound: f64) {
        assert!((found / exact - 1.0).abs() < bound, "{found} against {exact}");
    }

    /// Room for some whole prompts: a bulk queue with a largest batch (M. L. Chaudhry and J. G. C. Templeton, A First Course in Bulk Queues, 1983).
    #[test]
    fn steps_with_room_for_whole_prompts_are_a_bulk_queue() {
        let line = StepLine { first: 0.65, more: 0.5, ..StepLine::default() };
        for rate in [0.05, 0.5, 1.0, 1.6] {
            let exact = LimitedBatchQueue::new(rate, BatchTime::new(0.5, 0.15).unwrap(), 4).unwrap();
            let coming = Coming { rate, lengths: FIXED, spread: 0.0, idle: 1.0, steps: 1.0, growth: 0.0, places: 1e9 };
            let found = Backlog::new(&line, &line, PromptPolicy::First, 4.0, &coming);
            close(found.mean, exact.mean_sojourn(), 1e-3);
        }
    }

    /// Room for one: M/D/1, and about M/G/1 (Pollaczek and Khinchine) with prompts of several lengths, which are cut.
    #[test]
    fn steps_with_room_for_one_prompt_are_a_single_server() {
        for load in [0.2, 0.6, 0.85] {
            let exact = Md1::new(load, 1.0).unwrap();
            close(prompts_only(1.0, 0.0, 1.0, load, FIXED, 0.0).mean, exact.mean_wait() + 1.0, 1e-3);
        }
        // Half of the prompts take one step and half take three: steps of the length of a half of their mean.
        let lengths = [(0.5, 1.0), (1.5, 1.0)];
        for load in [0.2, 0.6, 0.8] {
            let found = prompts_only(1.0, 0.0, 0.5, load / 2.0, &lengths, 0.25);
            let exact = Mg1::new(load / 2.0, Service::from_moments(2.0, 5.0, None).unwrap()).unwrap();
            close(found.mean, exact.mean_wait() + 2.0, 0.06);
        }
    }

    /// Several steps as one: M/D/1 still, for prompts of a thousand steps.
    #[test]
    fn very_long_prompts_are_a_single_server_too() {
        for load in [0.01, 0.5] {
            let found = prompts_only(1.0, 0.0, 1e-3, load / 1000.0, FIXED, 0.0);
            close(found.mean, (Md1::new(load, 1.0).unwrap().mean_wait() + 1.0) * 1000.0, 0.02);
            assert!(found.at_least.len() < 1500 && found.steps[1..].iter().sum::<f64>() > 0.0);
        }
    }

    /// What the samples say is what the mean says.
    #[test]
    fn samples_have_the_mean() {
        let line = StepLine { first: 1.0, more: 0.9, ..StepLine::default() };
        for room in [1.0, 2.5, 8.0] {
            let found = prompts_only(1.0, 0.9, room, 0.6, FIXED, 0.0);
            let (mut sum, mut all) = (0.0, 0.0);
            for place in super::super::draw::places() {
                let waits = (place.before, place.when, place.together);
                sum += place.weights.0 * found.sample(&line, waits, 1.0, 1.0);
                all += place.weights.0;
            }
            close(sum / all, found.mean, 0.06);
        }
    }

    #[test]
    fn levels_are_in_the_ratio_of_prompts_and_room() {
        for hundredth in 3..1500 {
            let room = f64::from(hundredth) / 100.0;
            let (levels, per_step) = levels(room, 100.0);
            let off = levels as f64 * room / per_step as f64 - 1.0;
            assert!(off.abs() < 0.08, "{room}: {levels} and {per_step}");
        }
    }
}
