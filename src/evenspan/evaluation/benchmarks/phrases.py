"""The words that generated documents are made of: names, facts in many phrasings, questions, and sentences in between."""

from __future__ import annotations

PLACE_STARTS = (
    "Alder Ash Barn Beck Birch Brack Bram Carl Clay Cold Dray Dun Elm Fair Fern Garth Glen Grim Hal Harrow "
    "Hazel Holt Kel Lang Lark Lin Marl Mar Nether North Oak Os Pen Quarr Raven Red Rook Row Sal Sand Scar Sel "
    "Stan Thorn Thwaite Tor Up Ves Wald War Wen West Whit Win Wyn Yar Yew"
).split()
PLACE_ENDS = (
    "bourne bridge bury by combe dale den field ford garth gate ham hurst leigh mere mouth ness stead stow ton "
    "wick worth"
).split()
TYPES = (
    "abbey academy almshouse apothecary aquarium armoury arsenal aviary bakery barracks bathhouse boathouse bookshop "
    "brewery brickworks cannery casino chapel cinema circus convent courthouse creamery dairy distillery dockyard "
    "fishery forge fortress foundry gallery gasworks glassworks granary greenhouse gymnasium hatchery hospital hotel "
    "icehouse laboratory laundry library lighthouse mill mint monastery museum nursery observatory orphanage "
    "planetarium pottery printworks prison quarry racecourse ropewalk sanatorium sawmill school shipyard smokehouse "
    "tannery tavern theatre tollhouse vineyard waterworks weavery winery workhouse zoo"
).split()
FIRST_NAMES = (
    "Ada Albin Amos Beata Bruno Carla Cedric Clara Conrad Dora Edgar Edith Elias Emil Esther Felix Flora "
    "Gideon Greta Hanna Hector Hugo Ida Ines Ivo Jonas Judith Karl Klara Leo Lena Livia Magnus Maren Marta "
    "Milo Nora Olga Oskar Paula Petra Quentin Rosa Rufus Selma Silas Stella Tobias Ulla Vera Viktor Walter "
    "Wanda Yvonne"
).split()
LAST_NAMES = (
    "Abbot Ackerley Baines Barlow Bexley Calder Carver Colby Dacre Darrow Denby Eames Elwood Farrow Fenner "
    "Gale Garrick Haldane Hartley Ingram Jessop Keating Kirby Lamb Langley Mercer Mossman Nash Norcott Oakes "
    "Orme Pascoe Pickering Quill Radley Renshaw Sable Sefton Tarrant Thackery Underhill Vance Voss Wainwright "
    "Warrick Yardley"
).split()
MATERIALS = (
    "copper slate|red brick|black granite|oak shingles|blue tiles|riveted iron|lime plaster|"
    "yellow sandstone|cedar planks|grey flint|glazed clay|white marble|tarred canvas|green serpentine|"
    "beaten tin|cast concrete"
).split("|")
THINGS = (
    "brass compasses|pressed ferns|ship's bells|glass eyes|painted fans|river charts|wax seals|"
    "clay pipes|sheep crooks|bone needles|silver thimbles|plaster hands|weather diaries|opera masks|"
    "pocket sundials|seed packets|lace collars|iron keys|music boxes|salt spoons|stuffed owls|"
    "tin soldiers|paper lanterns|wooden clogs"
).split("|")
MONTHS = ("January February March April May June July August September October November December").split()

# Every kind of fact: its phrasings, and the questions that ask for it. {name} is "the Alderford mill".
FACTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "founder": (
        (
            "{Name} was founded by {person}.",
            "It was {person} who set up {name}.",
            "{Name} owes its existence to {person}.",
            "The founder of {name} was {person}.",
            "{person} established {name} with borrowed money.",
            "Without {person} there would be no {type} in {place}, for {person} founded it.",
            "{Name} began as an idea of {person}.",
            "Credit for starting {name} goes to {person}.",
            "{person} opened {name} against the advice of friends.",
            "The charter of {name} names {person} as its founder.",
            "{Name} was the creation of {person}.",
            "Old letters show that {person} brought {name} into being.",
        ),
        ("Who founded {name}?", "Who set up {name}?", "Who was the founder of {name}?", "Who started {name}?"),
    ),
    "year": (
        (
            "{Name} first opened its doors in {year}.",
            "In {year} {name} received its first visitors.",
            "The first day of {name} fell in the spring of {year}.",
            "{Name} has been open since {year}.",
            "A stone above the entrance of {name} bears the year {year}.",
            "Work at {name} began in {year}.",
            "The history of {name} starts in {year}.",
            "{Name} dates from {year}.",
            "The ledgers of {name} go back to {year}.",
            "It was {year} when {name} came into use.",
            "{Name} was inaugurated in {year} during a thunderstorm.",
        ),
        (
            "When did {name} open?",
            "In which year did {name} begin?",
            "How old is {name}?",
            "Since when has {name} existed?",
        ),
    ),
    "cost": (
        (
            "Repairing {name} swallowed {number} crowns.",
            "The restoration of {name} cost {number} crowns.",
            "{Name} was repaired for {number} crowns.",
            "The bill for mending {name} came to {number} crowns.",
            "A sum of {number} crowns went into the repair of {name}.",
            "To save {name} from ruin the parish spent {number} crowns.",
            "{number} crowns were paid for putting {name} in order.",
            "Masons asked {number} crowns for the repair of {name}.",
            "The repairs at {name} were settled with {number} crowns.",
            "After the flood {name} needed repairs worth {number} crowns.",
            "Donors gave {number} crowns so that {name} could be repaired.",
        ),
        (
            "What did the repair of {name} cost?",
            "How much was spent on repairing {name}?",
            "How expensive were the repairs at {name}?",
        ),
    ),
    "roof": (
        (
            "The roof of {name} is made of {material}.",
            "{Name} is covered with {material}.",
            "For its roof {name} was given {material}.",
            "Above {name} lies a roof of {material}.",
            "The roof of {name} was laid in {material}.",
            "Builders chose {material} for the roof of {name}.",
            "Rain drums on the {material} of the roof of {name}.",
            "The old thatch of {name} gave way to a roof of {material}.",
            "Nothing but {material} was good enough for the roof of {name}.",
            "Seen from the hill, the roof of {name} shows its {material}.",
            "Since the storm the roof of {name} has consisted of {material}.",
        ),
        (
            "What is the roof of {name} made of?",
            "What covers the roof of {name}?",
            "Which material is on the roof of {name}?",
        ),
    ),
    "collection": (
        (
            "{Name} keeps a collection of {thing}.",
            "In a back room of {name} there are cases full of {thing}.",
            "Visitors come to {name} for its {thing}.",
            "The pride of {name} is its collection of {thing}.",
            "{Name} has gathered {thing} for generations.",
            "Shelves of {thing} line the hall of {name}.",
            "A bequest left {name} with hundreds of {thing}.",
            "{Name} is known to collectors for its {thing}.",
            "Behind glass {name} displays {thing}.",
            "No other {type} has as many {thing} as the one in {place}.",
            "Among the treasures of {name} are {thing}.",
        ),
        (
            "What does {name} collect?",
            "What is kept in the collection of {name}?",
            "What can be seen behind glass at {name}?",
        ),
    ),
    "keeper": (
        (
            "{Name} is run by {person}.",
            "The keys of {name} are held by {person}.",
            "{person} has charge of {name}.",
            "Today {person} looks after {name}.",
            "The present keeper of {name} is {person}.",
            "{Name} is in the hands of {person}.",
            "Day to day, {person} manages {name}.",
            "The council put {person} in charge of {name}.",
            "{person} took over {name} from an aunt.",
            "Whoever wants to see {name} must ask {person}, who runs it.",
            "Since the last election {person} has directed {name}.",
        ),
        ("Who runs {name}?", "Who is in charge of {name}?", "Who looks after {name} today?", "Who manages {name}?"),
    ),
}

# Sentences in between: they name no place, so that they do not answer what is asked, and have room for much variation.
BETWEEN = (
    "On market days about {small} people pass the {type}, most of them in {month}.",
    "{person} painted the {type} {small} times and sold none of the pictures.",
    "The path from the station to the {type} is {small} minutes long and badly lit in {month}.",
    "A dog belonging to {person} slept on the doorstep for {small} years.",
    "In {month} the gutters of the {type} froze and {person} thawed them with {small} candles.",
    "School classes counted {small} swallows' nests under the eaves, as {person} had predicted.",
    "{person} complained about the noise of the {type} in {small} letters, all of which survive.",
    "The well in the yard is {small} feet deep; {person} measured it with a clothes line.",
    "During the drought of {year} the {type} shared its pump with {small} neighbours.",
    "A postcard of the {type} from {year} shows a cart, {small} barrels and a figure who may be {person}.",
    "Twice in {month} the road was closed, the second time for {small} days.",
    "{person} remembers that {small} lamps were lit at the {type} on feast days.",
    "The clock of the {type} has run {small} minutes late since {year}, and nobody minds.",
    "Under the floor {person} found {small} coins and a shoe.",
    "A quarrel between the {type} and {person} over {small} yards of hedge lasted until {year}.",
    "In the winter of {year} the stove of the {type} burned {small} sacks of coal a week.",
    "Of the {small} windows on the north side, {person} broke one with a ball.",
    "Surveyors came to the {type} in {month} {year} and left {small} wooden pegs behind.",
    "The annual supper of the {type} is held in {month}; {person} brings {small} pies.",
    "A map drawn by {person} in {year} puts the {type} {small} paces too far east.",
    "Bees were kept until {year}, in {small} hives along the wall of the {type}.",
    "When {person} left the {type}, {small} speeches were made and one was listened to.",
    "The oldest photograph of the {type}, of {month} {year}, was exposed for {small} seconds.",
    "An inventory of the {type} made in {year} lists {small} chairs, of which {person} mended most.",
    "Travellers to the {type} should bring boots in {month}; {person} lends out {small} pairs.",
    "The bell rope of the {type} was replaced in {year} after {small} years of service.",
    "{small} subscribers paid for the bench before the {type} where {person} liked to sit.",
    "By {year} the ivy had reached step {small}, to the delight of {person}.",
)
